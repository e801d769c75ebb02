#!/usr/bin/env bash
# Build the wheel and the sdist. Install the wheel in a fresh virtual environment outside the checkout, and run there
# what a newcomer runs first.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH

(cd "$checkout" && python -m hatchling build -d "$folder/dist")
pip wheel -q --no-deps -w "$folder/from-sdist" "$folder"/dist/*.tar.gz
files() { python -m zipfile -l "$1" | awk '{print $1, $NF}'; }
diff <(files "$folder"/dist/*.whl) <(files "$folder"/from-sdist/*.whl)

python -m venv "$folder/environment"
# shellcheck disable=SC1091
. "$folder/environment/bin/activate"
pip install -q -c "$checkout/constraints.txt" "$folder"/dist/*.whl
mkdir "$folder/home"
cd "$folder/home"
set -x
glass demo --steps 200
glass data show stories --size 300 > book.txt
glass train book.txt --out runs/book --recipe tiny --steps 60
glass generate runs/book "the" --tokens 10
glass look runs/book "the old dog sleeps" --out maps.png
glass compare book.txt --recipe tiny --vary model.positions=learned,none --seeds 2 --steps 20 --out runs/positions
glass share runs/book --out book.html
glass learn start 2
glass learn check 2 && exit 1  # nothing is written yet
[ -s maps.png ] && [ -s runs/positions/report.html ] && [ -s book.html ]
# The advice for an extra must work for a wheel: the package itself is not looked for in an index.
advice=$( (glass train book.txt --out runs/pieces --tokenizer.kind unigram --steps 5 2>&1 || true) | tail -n 1)
[ "$advice" = 'pip install "glassformer[tok]"' ]
bash -c "$advice --quiet"
glass train book.txt --out runs/pieces --tokenizer.kind unigram --tokenizer.vocab_size 400 --recipe tiny --steps 5
