# What tests/wheel/run and tests/wheel/previous share: an empty environment with one wheel, and a small project. Each sources it.
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 DVC_NO_ANALYTICS=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
python=$(command -v "${1:-python}")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# wheel SOURCE FOLDER: build a wheel of SOURCE; with the environment's own setuptools nothing is downloaded.
wheel() {
    (cd "$1" && "$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$2" .)
}

# installed WHEEL ENVIRONMENT: an environment with the wheel and the dependencies of $python. The package that is
# installed beside them is left out: paths of editable installs lie in .pth files, which are not read there.
installed() {
    "$python" -m venv --without-pip "$2"
    local own
    own=$("$2/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    "$python" -m pip install --quiet --no-deps --target "$own" "$1"
    "$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > "$own/dependencies.pth"
}

# project METHODS: a project in ./project, with the rows and the tiny encoder of the tests; $regft is the command.
project() {
    (cd "$repository" && "$python" -c 'import sys, pathlib, tests.tiny; tests.tiny.tiny_model_dir(pathlib.Path(sys.argv[1]), "bert")' "$scratch")
    mv "$scratch/tiny-bert" "$scratch/encoder"
    cp "$repository/examples/reviews.csv" .
    "${regft[@]}" init project --task reviews.csv --text review --label verdict --model "$scratch/encoder"
    sed -i -e "s/^methods:.*/methods: [$1]/" -e 's/reference: .*/reference: vanilla/' -e 's/^  seeds:.*/  seeds: [0, 1]/' \
        -e 's/epochs: 10/epochs: 1/' -e 's/workers: 2/workers: 1/' project/params.yaml
}
