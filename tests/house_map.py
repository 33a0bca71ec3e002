"""The order of the house, from house.txt, and its map in CONTRIBUTING.md, which `python -m tests.house_map` draws."""

from textwrap import wrap

from tests.source import ROOT, subject

DOCUMENT, MARK = ROOT / "CONTRIBUTING.md", "<!-- the house -->\n"
MARGIN = " " * 18
HOUSE_FILE = ROOT / "tests" / "house.txt"
HOUSE = [line for line in HOUSE_FILE.read_text().replace("\n   ", "").splitlines() if not line.startswith("#")]
ORDER = {folder: files.split() for folder, files in (line.split(":") for line in HOUSE)}


def house_map(order):
    """Every folder and every file at the top, low to high, with what it is and what is in it."""
    lines = []
    for name in order["ritz"][:-1]:
        title = f"    {name + '/' * (name in order):13} "
        files = "  ".join(file + "/" * (f"{name}.{file}" in order) for file in order.get(name, ()))
        lines += wrap(subject(name), 116, initial_indent=title, subsequent_indent=MARGIN)
        lines += wrap(files, 116, initial_indent=MARGIN, subsequent_indent=MARGIN)
    return "\n".join([MARK, *lines, "", MARK])


if __name__ == "__main__":
    before, _, after = DOCUMENT.read_text().split(MARK)
    DOCUMENT.write_text(f"{before}{house_map(ORDER)}{after}")
