"""A wildcard of a command rule stands for no option that writes or runs, however it is spelled."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.policy import WorkspacePolicy
from intercom.workspace import command_rules
from intercom.workspace.command_rules import TABLE, UNKNOWN
from intercom.workspace.policy import Query, evaluate

ON = WorkspacePolicy(enabled=True)


def passes(rule: str, command: str, *args: str) -> bool:
    return evaluate(evolve(ON, commands=(rule,)), Query(command, args)).auto_approved


#: By rule, commands that write or run by an option or an operand, in all the ways it can be spelled.
HARMFUL: dict[str, list[str]] = {
    "git diff *": [
        "git diff -o.git/x", "git diff -oout", "git diff -o out", "git diff --output=x", "git diff --output x",
        "git diff --outp=x", "git diff --outp x", "git diff --output-indicator-new=x --output=y",
        "git diff '--output=x'", 'git diff --out"put=x"', "git diff \\--output=x", "git diff --stat --output=x",
        "git diff HEAD --output=x", "git diff -- --output=x", "git diff --ext-diff", "git diff --ext",
        "git diff --textconv", "git diff --no-index /etc/passwd x", "git diff -Oorder", "git diff -pO x", "git diff *",
        "git diff ''*", "git diff [-]x", "git diff ?-output=x", "git diff @file", "git diff +x",
        "git diff core.pager=x", "GIT_PAGER=x git diff", "GIT_EXTERNAL_DIFF=./x git diff", "A=1 B=2 git diff",
        "git -c core.pager=x diff", "git -ccore.pager=x diff", "git --config-env=core.pager=X diff",
        "git --exec-path=. diff", "git -C /tmp/x diff", "git --git-dir=/tmp/x diff", "git -p diff",
    ],
    "git *": [
        "git -c core.pager=x log", "git -c alias.x=y x", "git -C /tmp/evil status", "git --git-dir /tmp/evil status",
        "git --exec-path=/tmp x", "git -p log", "git config core.pager x", "git bisect run ./x",
        "git rebase --exec ./x main", "git submodule foreach ./x", "git difftool -y -x ./x",
        "git filter-branch --tree-filter ./x", "git push origin main", "git an-alias", "git commit -m x",
        "git clone ext::./x", "git diff --output=x", "git grep -O./x foo", "git archive -o x HEAD",
        "git log --output=x", "git show --output=x", "git format-patch -o x",
    ],
    "git log *": ["git log --output=x", "git log --outpu=x", "git log -p --ext-diff", "git log -Oorder"],
    "git show *": ["git show --output=x", "git show HEAD --ext-diff", "git show --textconv"],
    "git grep *": ["git grep -O foo", "git grep -Ovi foo", "git grep --open-files-in-pager=x foo", "git grep -nO foo"],
    "git fetch *": [
        "git fetch --upload-pack=./x origin", "git fetch --upload-pack ./x origin", "git fetch --upload ./x",
        "git fetch ext::./x", "git fetch origin ext::./x", "git fetch -u ./x", "git fetch --recurse-submodules",
    ],
    "git push *": [
        "git push --receive-pack=./x", "git push --exec=./x origin", "git push --force", "git push -f",
        "git push origin +main", "git push origin :main", "git push --mirror", "git push --delete origin main",
    ],
    "git clone *": [
        "git clone -c core.fsmonitor=./x y", "git clone --config=core.fsmonitor=./x y", "git clone --template=./x y",
        "git clone -u ./x y", "git clone --upload-pack=./x y", "git clone ext::./x",
    ],
    "git commit *": [
        "git commit -F x", "git commit --template=x", "git commit -S./x", "git commit -n", "git commit -nm x",
    ],
    "git archive *": [
        "git archive -o x HEAD", "git archive -ox HEAD", "git archive --remote=x", "git archive --exec=./x",
    ],
    "git rebase *": ["git rebase --exec ./x", "git rebase -x ./x", "git rebase -i", "git rebase --ex ./x"],
    "git config *": ["git config core.pager x", "git config --get x"],
    "git bisect *": ["git bisect run ./x"],
    "git submodule *": ["git submodule foreach ./x"],
    "git difftool *": ["git difftool -x ./x", "git difftool --extcmd=./x"],
    "find *": [
        "find . -exec ./x", "find . -execdir ./x", "find . -ok ./x", "find . -okdir ./x", "find . -delete",
        "find . -fprint x", "find . -fprintf x y", "find . -fls x", "find . -name x -delete", "find . -files0-from x",
        "find -delete",
    ],
    "grep *": ["grep --unknown x", "grep @x y", "grep -O x"],
    "rg *": [
        "rg --pre ./x foo", "rg --pre=./x foo", "rg -z foo", "rg --hostname-bin=./x foo", "rg --search-zip x",
        "rg x *.py",
    ],
    "ls *": ["ls --unknown", "ls *"],
    "cat *": ["cat --unknown x"],
    "tree *": ["tree -o x", "tree -ox", "tree -R", "tree -L 1 -R"],
    "sed *": [
        "sed -i s/a/b/ x", "sed -i.bak s/a/b/ x", "sed -ni s/a/b/ x", "sed --in-place s/a/b/ x", "sed --in s/a/b/ x",
        "sed -f x y", "sed -n -e p x", "sed -n 'w x' y", "sed -n wx y", "sed s/a/b/w y", "sed 's/a/b/w x' y",
        "sed s/a/./x/e y", "sed s/a/b/e y", "sed 1e y", "sed '1e ./x' y", "sed 's/a/b/ge' y", "sed 'r x' y",
        "sed '1,5W x' y", "sed --expression=p x",
    ],
    "sed -n *": ["sed -n 'w x' y", "sed -n '1,2w x' y", "sed -n 1p y -i"],
    "awk *": [
        "awk -f x y", "awk -i inplace /a/ y", "awk -l x /a/ y", "awk -v a=b /a/ y", 'awk \'@load "x"\' y',
        'awk \' @load "x"\' y', 'awk -F /x/ \' @include "x"\' y', 'awk -F /x/ \'@include "x"\' y',
        "awk 'BEGIN system' x", "awk -o x /a/", "awk --dump-variables=x /a/", "awk /a/ FS=x y",
    ],
    "sort *": [
        "sort -o x y", "sort -ox y", "sort -uo x y", "sort -ro.git/x y", "sort --output=x y", "sort --output x y",
        "sort --outp=x y", "sort --compress-program=./x y", "sort --compress-prog ./x y", "sort -T x y", "sort -S 1 y",
        "sort y -o y", "sort -- -o y", "sort --files0-from=x",
    ],
    "uniq *": ["uniq in out"],
    "tar *": [
        "tar xf x", "tar -xf x", "tar cf x y", "tar -cf x y", "tar -tf x --to-command=./x",
        "tar -tf x --to-command ./x", "tar -tf x --checkpoint=1 --checkpoint-action=exec=./x", "tar -tf x -I ./x",
        "tar -I./x -tf x", "tar -tf x --use-compress-program=./x", "tar -tf x --use-comp ./x",
        "tar -tf x --rsh-command=./x", "tar -tf host:x", "tar -tf x -F ./x", "tar -tf x --info-script=./x",
        "tar tfI x ./x", "tar --extract -f x", "tar -tf x -C /tmp",
    ],
    "make *": [
        "make SHELL=./x", "make CC=./x all", "make all SHELL=./x", "make -f x", "make -fx", "make -C x", "make -Cx",
        "make -kf x", "make --file=x", "make --eval=x", "make -E x", "make -I x", "make --directory=x", "make -o x",
        "SHELL=./x make", "make 'X!=./x'", "make 'X != ./x'", "make SHELL:=./x", "make SHELL::=./x", "make SHELL+=x",
        "make SHELL?=x", "make .SHELLFLAGS=x", "make -j 'X!=./x'", "make X*",
    ],
    "bmake *": ["bmake 'X!=./x'"],
    "*/pytest *": ["X+=/pytest ./x", "X[0]=/pytest ./x"],
    "bin/*": ["bin/../x", "bin/x/../../x", "./bin/x"],
    "bin*": ["bin/../x"],
    "cat docs/*": ["cat docs/../../.ssh/id_rsa", "cat docs/.."],
    "git ls-remote *": ["git ls-remote --upload-pack=./x y", "git ls-remote ext::./x", "git ls-remote e*"],
    "npm *": [
        "npm run x", "npm exec x", "npm install x", "npm config set script-shell ./x", "npm --prefix x ls", "npm x y",
    ],
    "npm test *": [
        "npm test --script-shell=./x", "npm test --script-shell ./x", "npm test -- -x", "npm test --prefix x",
    ],
    "npm run *": ["npm run x --script-shell=./x", "npm run x --node-options=-r=./x", "npm run x -- --exec"],
    "npm install *": ["npm install --prefix x", "npm install -g x", "npm install --registry=x", "npm i -C x y"],
    "npx *": ["npx x", "npx tsc", "npx -y x", "npx -p x y", "npx -c x", "npx --package=x y"],
    "npx tsc *": ["npx tsc --outDir x", "npx tsc -p x", "npx tsc --build"],
    "yarn *": ["yarn dlx x", "yarn exec x", "yarn node x", "yarn some-script"],
    "pnpm *": ["pnpm dlx x", "pnpm exec x", "pnpm -C x ls"],
    "cargo *": [
        "cargo run", "cargo install x", "cargo --config x build", "cargo -Z x build", "cargo +nightly build",
        "cargo alias",
    ],
    "cargo test *": [
        "cargo test --config x", "cargo test --config=build.rustc-wrapper=x", "cargo test --manifest-path x",
        "cargo test --target-dir=x", "cargo test --conf x", "cargo test -- --logfile=x", "cargo test -Zx",
        "cargo test -C x",
    ],
    "cargo run *": ["cargo run -- --write", "cargo run --manifest-path=x", "cargo run -q"],
    "go *": ["go run x.go", "go tool x", "go generate", "go env -w X=y", "go install x", "go -C x test", "go mod tidy"],
    "go test *": [
        "go test -exec ./x", "go test -exec=./x", "go test --exec=./x", "go test -toolexec ./x",
        "go test -toolexec=./x", "go test -o x", "go test -c", "go test -coverprofile=x", "go test -cpuprofile x",
        "go test -overlay=x", "go test -modfile=x", "go test -ldflags=x", "go test -vettool=./x",
        "go test -outputdir x",
    ],
    "go build *": ["go build -o x", "go build -o=x", "go build -toolexec=./x", "go build -ldflags=-extld=./x"],
    "pytest *": [
        "pytest -p x", "pytest -px", "pytest -xp x", "pytest -c x", "pytest -cx", "pytest -qc x",
        "pytest -o pythonpath=x", "pytest --rootdir=x", "pytest --rootd x", "pytest --basetemp=x",
        "pytest --basetemp x", "pytest --junitxml=x", "pytest --junit-xml=x", "pytest --log-file=x",
        "pytest --pdbcls=x:y", "pytest --confcutdir=x", "pytest --cov-report=html:x", "pytest --debug=x",
        "pytest --cache-clear", "pytest -W error::x.Y", "pytest @x", "pytest *.py", "PYTHONPATH=x pytest",
        "PYTEST_ADDOPTS=-px pytest",
    ],
    "python -m pytest *": [
        "python -m pytest -p x", "python -m pytest --basetemp=x", "python -m pytest -c x", "python -m pytest -o a=b",
        "python -c x -m pytest", "PYTHONSTARTUP=x python -m pytest",
    ],
    "python *": [
        "python -c x", "python -cx", "python -Ic x", "python -m x", "python -mx", "python -i x", "python -",
        "python x.py -o y",
    ],
    "python3.12 *": ["python3.12 -c x", "python3.12 -W x y"],
    "pip *": ["pip install x", "pip config set x y", "pip --log x list", "pip list --log=x"],
    "pip install *": [
        "pip install --index-url x y", "pip install -i x y", "pip install --extra-index-url=x y", "pip install -r x",
        "pip install -e x", "pip install -t x y", "pip install --target=x y", "pip install --prefix x y",
        "pip install --trusted x y", "pip install -qi x y",
    ],
    "uv *": ["uv run x", "uv pip install x", "uv tool run x", "uv sync", "uv --directory x tree"],
    "uv run *": ["uv run x", "uv run --with x y", "uv run --directory x pytest", "uv run pytest -p x"],
    "uv run pytest *": ["uv run pytest -p x", "uv run pytest --basetemp=x"],
    "node *": [
        "node -e x", "node -p x", "node -r ./x y", "node --require ./x y", "node --import=./x y", "node --eval=x",
        "node x.js -o y",
    ],
    "docker *": [
        "docker run x", "docker exec x y", "docker -H x ps", "docker --config x ps", "docker cp x y", "docker build .",
    ],
    "docker run *": ["docker run -v /:/x y", "docker run alpine"],
    "docker compose *": ["docker compose up", "docker compose -f x up"],
    "docker logs *": ["docker logs --details x"],
    "curl *": [
        "curl -o x y", "curl -ox y", "curl -O y", "curl -sSo x y", "curl -fsSLO y", "curl --output x y",
        "curl --outp x y", "curl -K x", "curl --config x", "curl -T x y", "curl -d @x y", "curl -F a=@x y",
        "curl --dump-header x y", "curl -D x y", "curl -c x y", "curl --trace x y", "curl --libcurl x y",
        "curl -w @x y", "curl -x y z", "curl --unix-socket x y",
    ],
    "wget *": [
        "wget -O x y", "wget -qO x y", "wget -e x=y z", "wget --execute x", "wget -i x", "wget -P x y",
        "wget --use-askpass=./x y",
    ],
    "ssh *": ["ssh host", "ssh -oProxyCommand=./x host", "ssh host ./x", "ssh -F x host"],
    "ssh host *": ["ssh host ./x", "ssh host -o ProxyCommand=x"],
    "scp *": ["scp -S ./x a b", "scp -oProxyCommand=x a b", "scp a b"],
    "rsync *": [
        "rsync -e ./x a b", "rsync -ave ./x a b", "rsync --rsh=./x a b", "rsync --rsh ./x a b",
        "rsync --rsync-path=x a b", "rsync -M--x a b",
    ],
    "xargs *": ["xargs ./x", "xargs -I x rm x", "xargs -a x rm"],
    "env *": ["env ./x", "env A=b git diff", "env -S x", "env -i ./x"],
    "sh *": ["sh x.sh", "sh -c x"],
    "bash *": ["bash x.sh", "bash -c x", "bash -lc x"],
    "timeout *": ["timeout 5 ./x"],
    "sudo *": ["sudo ls"],
    "tee *": ["tee --unknown x", "tee -p x", "tee *"],
    "less *": ["less -o x y", "less -Ox y", "less +!./x y", "less -k x y", "less --log-file=x y"],
    "man *": ["man -P ./x ls", "man -H./x ls", "man --pager=./x ls", "man -C x ls"],
    "vim *": ["vim -c x y", "vim +x y", "vim --cmd x y", "vim -S x y", "vim -w x y", "vim -es y", "vim -u x y"],
    "gh *": [
        "gh api x", "gh extension exec x", "gh alias set x y", "gh auth token", "gh secret list", "gh pr merge 1",
        "gh pr create",
    ],
    "gh api *": ["gh api repos", "gh api -X DELETE repos", "gh api graphql -f x=y"],
    "gh pr *": ["gh pr merge 1", "gh pr checkout 1", "gh pr close 1", "gh pr view 1 --web", "gh pr view -w"],
    "kubectl *": [
        "kubectl delete pod x", "kubectl exec x y", "kubectl apply -f x", "kubectl --kubeconfig x get pods",
        "kubectl --kubeconfig=x get pods", "kubectl cp x y", "kubectl -s x get pods", "kubectl config set x y",
    ],
    "kubectl get *": ["kubectl get pods --kubeconfig=x", "kubectl get pods --token x", "kubectl get pods --server=x"],
    "unheard-of *": [
        "unheard-of -x", "unheard-of --x", "unheard-of -- x", "unheard-of a -o", "unheard-of a=b", "unheard-of @a",
        "unheard-of +a",
    ],
    "*": ["A=b ls", "git diff --output=x", "env ls", "./x -o y", "sh x", "xargs rm", "*sh x", "find . -delete"],
}  # fmt: skip

#: By rule, what is run day by day and only shows something.
HARMLESS: dict[str, list[str]] = {
    "git diff *": [
        "git diff", "git diff --stat", "git diff --stat=80 HEAD", "git diff HEAD~1 -- src/x.py", "git diff --cached",
        "git diff --name-only main", "git diff -U3 -w", "git diff -M90% main", "git diff --color=never",
    ],
    "git log *": [
        "git log --oneline -5", "git log -n 5 --format=%h", "git log -Sfoo -p", "git log --since=yesterday", "git log",
    ],
    "git show *": ["git show HEAD", "git show --stat HEAD~2"],
    "git status *": ["git status -s", "git status --short --branch", "git status -sb"],
    "git *": ["git status", "git --no-pager log -3", "git diff --stat", "git blame -L 1,5 x.py", "git ls-files -o"],
    "git commit *": ["git commit -m 'a message'", "git commit -am x", "git commit --amend --no-edit"],
    "git add *": ["git add -A", "git add src/x.py"],
    "git fetch *": ["git fetch origin", "git fetch --all --prune"],
    "git push *": ["git push origin main"],
    "find *": ["find . -name '*.py' -type f", "find src -maxdepth 2 -not -path './x/*'", "find . -size 1k -print0"],
    "grep *": ["grep -rn foo src", "grep -rnE 'a.b' --include=*.py src", "grep -A3 -i x y"],
    "rg *": ["rg -n foo src", "rg --files", "rg -tpy 'def x' -A 3", "rg -g '*.py' foo"],
    "ls *": ["ls -la src", "ls"],
    "cat *": ["cat -n x.py", "cat x.py"],
    "head *": ["head -n 5 x", "head -20 x", "head -c100 x"],
    "sed -n *": ["sed -n 1,5p x", "sed -n '10,20p' x.py"],
    "sed *": ["sed s/a/b/ x", "sed -E 's/a+/b/g' x", "sed -n 5p x"],
    "awk *": ["awk /foo/ x", "awk -F: /foo/ x"],
    "sort *": ["sort -u x", "sort -k2 -n x", "sort -t, -k 2,2 x"],
    "tar *": ["tar tf x.tar", "tar -tf x.tar", "tar tvzf x.tgz", "tar -tzvf x.tgz"],
    "make *": ["make", "make test", "make -j4 all", "make -j 4 all", "make -k -s check"],
    "bin/*": ["bin/x", "bin/x/y"],
    "../bin/*": ["../bin/x"],
    "cat docs/*": ["cat docs/x.md", "cat docs/a..b"],
    "npm run *": ["npm run build", "npm run -s lint"],
    "npm test *": ["npm test", "npm test --silent"],
    "npm install *": ["npm install lodash", "npm install -D @types/node", "npm install --save-dev x"],
    "npx tsc *": ["npx tsc", "npx tsc src/x.ts"],
    "cargo test *": ["cargo test", "cargo test --all -q", "cargo test --package=x y -- --nocapture", "cargo test -p x"],
    "go test *": ["go test ./...", "go test -v -run TestX ./x", "go test -run=TestX -count=1 ./...", "go test -race"],
    "pytest *": [
        "pytest", "pytest -x -q tests/test_x.py", "pytest tests/x.py::test_a -k 'a and b'", "pytest -vv --maxfail=1",
        "pytest --lf",
    ],
    "python -m pytest *": ["python -m pytest -q tests", "python -m pytest --co", "python -m pytest tests/x.py::test_a"],
    "python3.12 *": ["python3.12 x.py", "python3.12 -B x.py a"],
    "pip install *": ["pip install -U x", "pip install x"],
    "uv run pytest *": ["uv run pytest -q", "uv run pytest -x tests"],
    "uv run *": ["uv run"],
    "node *": ["node x.js", "node --version"],
    "docker *": ["docker ps -a", "docker logs -f --tail=50 x", "docker images"],
    "curl *": ["curl -fsSL https://x.example/y", "curl -I https://x.example"],
    "gh *": ["gh pr view 1 --comments", "gh pr diff 1", "gh run list -L 5", "gh issue list --json number"],
    "kubectl *": ["kubectl get pods -n x -o wide", "kubectl logs -f x --tail=50", "kubectl -n x get pods"],
    "unheard-of *": ["unheard-of a b", "unheard-of src/x*.py", "unheard-of"],
    "ruff check --fix *": ["ruff check --fix src"],
}  # fmt: skip


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(rule, command) for rule, found in table.items() for command in found]


@pytest.mark.parametrize(("rule", "command"), cases(HARMFUL))
def test_what_writes_or_runs_fits_no_wildcard(rule: str, command: str) -> None:
    assert command_rules.read(command) is not None, "refused for what it is, and not for its options"
    assert not passes(rule, command)


@pytest.mark.parametrize(("rule", "command"), cases(HARMLESS))
def test_what_only_shows_fits_a_wildcard(rule: str, command: str) -> None:
    assert passes(rule, command)


@pytest.mark.parametrize(
    "command",
    [
        "git diff --output=x",
        "git -c core.pager=cat diff",
        "GIT_PAGER=cat git diff",
        "find . -delete",
        "sort -o x y",
        "make SHELL=./x",
        "env ./x",
        "unheard-of --x @y +z",
        "ruff check --fix .",
    ],
)
def test_a_rule_that_names_a_word_grants_it(command: str) -> None:
    assert passes(command, command)
    words = command.split()
    assert not passes(" ".join([*words[:-1], "*"]), command) or not words[-1].startswith("-")


@pytest.mark.parametrize(
    "rule", ["git diff --out*", "git diff --output=*", "git diff -?*", "git diff [-]*", "find . -d*"]
)
def test_a_rule_that_spells_a_part_of_an_option_does_not_name_it(rule: str) -> None:
    for command in ("git diff --output=x", "git diff -ox", "find . -delete"):
        assert not passes(rule, command)


def test_words_given_apart_are_judged_as_words() -> None:
    assert passes("git diff *", "git", "diff", "--stat")
    assert not passes("git diff *", "git", "diff", "--output=x")
    # How they would be quoted is not known.
    assert not passes("find *", "find", ".", "-name", "*.py")


PROGRAMS = sorted(TABLE)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_has_a_wildcard_stand_for_what_the_table_does_not_know(program: str) -> None:
    for word in ("--unheard-of", "--unheard-of=x", "-%", "@x", "+x", "A=b"):
        assert not passes(f"{program} *", f"{program} {word}"), word


@given(
    st.sampled_from(PROGRAMS), st.lists(st.text(st.characters(codec="ascii", categories=("L", "N", "P"))), max_size=4)
)
def test_what_a_wildcard_grants_holds_no_option_that_is_not_in_the_table(program: str, words: list[str]) -> None:
    command = command_rules.read(program, words)
    if command is not None and passes(f"{program} *", program, *words):
        assert all(command.harmless)
        options = TABLE[program]
        if options == UNKNOWN:
            assert not any(word.startswith("-") for word in command.words[1:])
