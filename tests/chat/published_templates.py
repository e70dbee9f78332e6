"""Writes the chat templates of the packages trl and axolotl, and conversations to try them with.

usage: published_templates.py FOLDER

FOLDER/published.json: {"templates": {name: source}, "conversations": [{"messages", "variables"}]}.
"""
import importlib.util
import json
import pathlib
import random
import sys

WORDS = ["rain", "sun", "is", "the", "answer", "42", "😀", "é", "日本語", "don't", "x = 1\n", "\n\n", "<b>bold</b>", "[1]",
         "a < b", "{{ x }}", "\"quoted\"", "\\n", "  ", "**", "user", "assistant", "\t", "ẞ", "👩‍👩‍👧"]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "é"}}, "required": ["city"]}}}]


def published() -> dict[str, str]:
    found = {}
    for package in ("trl", "axolotl"):
        origin = importlib.util.find_spec(package).origin
        for path in sorted(pathlib.Path(origin).parent.rglob("*.jinja")):
            found[f"{package}/{path.stem}"] = path.read_text()
    return found


def text(draw: random.Random, least: int = 1) -> str:
    words = [draw.choice(WORDS) for _ in range(draw.randint(least, 8))]
    return draw.choice(["", "", " ", "\n"]) + " ".join(words) + draw.choice(["", "", " ", "\n"])


def conversation(draw: random.Random) -> dict:
    """Some have a system message, tools that are called, thoughts in either form, or turns without words."""
    messages, variables = [], {}
    has_tools, has_thoughts = draw.random() < 0.3, draw.random() < 0.3
    if draw.random() < 0.4:
        messages.append({"role": "system", "content": "Be brief. " + text(draw)})
    if has_tools:
        variables["tools"] = TOOLS
    for _ in range(draw.randint(1, 6)):
        messages.append({"role": "user", "content": text(draw)})
        if has_tools and draw.random() < 0.7:
            call = {"type": "function", "id": "abcdefghi", "function": {"name": "get_weather", "arguments": {"city": text(draw)}}}
            messages.append({"role": "assistant", "content": draw.choice(["", "", "I look."]), "tool_calls": [call]})
            messages.append({"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": text(draw)})
        answer = {"role": "assistant", "content": "" if draw.random() < 0.05 else text(draw)}
        if has_thoughts and draw.random() < 0.5:
            answer["reasoning_content"] = text(draw)
        elif has_thoughts:
            answer["content"] = "<think>\n" + text(draw) + "\n</think>\n\n" + answer["content"]
        messages.append(answer)
    if draw.random() < 0.2:
        variables["enable_thinking"] = draw.random() < 0.5
    return {"messages": messages, "variables": variables}


def main() -> None:
    draw = random.Random(0)
    conversations = [conversation(draw) for _ in range(200)]
    path = pathlib.Path(sys.argv[1]) / "published.json"
    path.write_text(json.dumps({"templates": published(), "conversations": conversations}))


if __name__ == "__main__":
    main()
