"""scripts/gpu/registers.py: what counts as too many registers on which architecture."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu"))
import registers  # noqa: E402

REPORT = """ptxas info    : Compiling entry function '_Z11some_kernelPf' for '{architecture}'
ptxas info    : Function properties for _Z11some_kernelPf
    {stack} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used {count} registers, used 0 barriers
"""


class Offences(unittest.TestCase):
    def found(self, architecture: str, count: int, stack: int = 0) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "some.cu"
            source.write_text("// Registers: some_kernel 32\n")
            report = REPORT.format(architecture=architecture, count=count, stack=stack)
            return list(registers.offences(source, architecture, report, verbose=False))

    def test_are_registers_beyond_the_budget(self):
        self.assertEqual(self.found("sm_90", 32), [])
        self.assertIn("33 registers, more than 32", self.found("sm_90", 33)[0])

    def test_spare_registers_that_cost_no_thread(self):
        for architecture, count in {"sm_75": 64, "sm_86": 40, "sm_89": 40, "sm_120": 40}.items():
            self.assertEqual(self.found(architecture, count), [])
            self.assertEqual(len(self.found(architecture, count + 1)), 1)

    def test_are_spills_on_every_architecture(self):
        for architecture in registers.architectures():
            self.assertIn("a stack frame or spills, 8 bytes", self.found(architecture, 20, stack=8)[0])


if __name__ == "__main__":
    unittest.main()
