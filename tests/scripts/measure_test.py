"""Tests the benchmark's calculations: rates, order of runs and ratios."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/bench"))
from measure import OutOfTime, Process, Result, alternate, median_rate, ratios  # noqa: E402


def result(rate: float, peak: int = 1) -> Result:
    return Result(rate=rate, first_step_seconds=1, ready_bytes=1, peak_bytes=peak, first_loss=0, last_loss=0)


class Measure(unittest.TestCase):
    def test_the_rate_is_the_median_over_intervals_after_warm_up(self):
        points = [(1, 0.0), (2, 100.0), (3, 200.0), (4, 201.0), (5, 202.0), (6, 210.0), (7, 211.0)]
        self.assertEqual(median_rate(points, 32), 32)

    def test_contenders_take_turns_from_both_ends(self):
        order = []
        contenders = {name: lambda turn, name=name: order.append(name) or result(1) for name in "ABC"}
        alternate(contenders, 2, lambda text: None)
        self.assertEqual("".join(order), "ABCCBA")

    def test_ratios_are_medians_of_pairs(self):
        ours, theirs = [result(10, 3), result(30, 1), result(20, 2)], [result(10, 2), result(10, 2), result(10, 2)]
        found = ratios(ours, theirs)
        self.assertEqual((found["throughput"], found["peak memory"]), (2, 1))

    def test_a_program_whose_time_is_up_has_not_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            for command, ends in ((["sleep", "60"], OutOfTime), (["false"], SystemExit)):
                process = Process(command, {}, pathlib.Path(folder) / "log", limit_seconds=0.5)
                self.assertEqual(list(process.lines()), [])
                with self.assertRaises(SystemExit) as ended:
                    process.finish()
                self.assertIs(type(ended.exception), ends)


if __name__ == "__main__":
    unittest.main()
