"""The policy's rules for commands: the globs that grant them, and the options that a wildcard may stand for.

Many programs write files or start programs through an option (`git diff --output=`, `find -exec`, `sort -o`,
`rg --pre`), spelled in many ways: attached, abbreviated, bundled. The table lists the harmless ones only.

A command is only read here. `intercom.workspace.command_runner` runs those of the configuration.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from enum import Enum

from attrs import evolve, field, frozen
from wcmatch import fnmatch

#: An assignment, including the shell forms `X+=y` and `X[0]=y`.
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(?:\[[^\]]*\])?\+?=")
_ANYTHING = re.compile(r".*", re.DOTALL)
_NOTHING = re.compile(r"(?!)")


class Globbing(Enum):
    """What a shell may expand a word with an unquoted `*`, `?` or `[` to. This is nothing, words with the same
    beginning, or words with any beginning, because files can have any name."""

    NONE = "none"
    WITHIN = "within"
    FROM_START = "from its start"


@frozen
class Options:
    """The known options of a program, or of one of its subcommands.

    `flags` are harmless one-letter options, which may be bundled. `valued` are those that take the rest of the word, or
    the next word, as their value. `long` are harmless long options by full name; a name that ends in `=` also accepts a
    value. `words` are options of several letters after one dash. `numbers`: `-5` is an option.

    `operands` matches the operands that a wildcard may stand for. `first` matches the first operand, which may be a
    program or a script. Unless these match every word, a word that a shell may expand never matches. `names`: an
    operand may begin with `@` (a package's name).

    `subcommands` are its subcommands. A wildcard only matches those in `shown`, which change and run nothing. `skipped`
    are options before the subcommand whose value is the next word. `delegates`: the first operand is a program, and the
    words after it are its arguments. `modules`: so is the word after `-m`. `bundled`: the first word may be a bundle of
    options without a dash.
    """

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    numbers: bool = False
    operands: re.Pattern[str] = _ANYTHING
    first: re.Pattern[str] = _ANYTHING
    names: bool = False
    subcommands: Mapping[str, Options] = field(factory=dict)
    shown: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    delegates: bool = False
    modules: bool = False
    bundled: bool = False

    def is_harmless(self, word: str) -> bool:
        """Whether `word`, which begins with a dash, is a harmless option or a bundle of them."""
        if word == "--":
            return self != UNKNOWN
        if word in self.words:
            return True
        name, equals, _ = word.partition("=")
        if equals and f"{name}=" in self.words:
            return True
        if word.startswith("--"):
            # Only the full name: the meaning of an abbreviation depends on the program's version.
            return f"{name[2:]}=" in self.long or (not equals and name[2:] in self.long)
        if self.numbers and word[1:].isascii() and word[1:].isdecimal():
            return True
        for letter in word[1:]:
            if letter in self.valued:
                return True
            if letter not in self.flags:
                return False
        return len(word) > 1


def harmless(words: Sequence[str], globbing: Sequence[Globbing]) -> tuple[bool, ...]:
    """Return, for each word of a command, whether a rule's wildcard may match it.

    `globbing` says what a shell may expand each word to. A wildcard never matches an option missing from the table, nor
    an assignment before or among the words (`PAGER=x git diff`, `make SHELL=x`). Nor does it match a response file
    (`@file`), or a word that begins with a plus sign (`vim +cmd`).
    """
    found: list[bool] = []
    at = 0
    while at < len(words) and _ASSIGNMENT.match(words[at]):
        found.append(False)
        at += 1
    if at < len(words):
        found.append(not words[at].startswith(("-", "+", "@")) and globbing[at] is not Globbing.FROM_START)
        found += _arguments(_program(words[at]), words[at + 1 :], globbing[at + 1 :])
    return tuple(found)


def _program(word: str) -> Options:
    name = os.path.basename(word)
    found = TABLE.get(name)
    if found is None and re.fullmatch(r"(python|pip|pypy)[0-9][0-9.]*", name):
        return TABLE[name.rstrip("0123456789.")]
    return UNKNOWN if found is None else found


def _arguments(options: Options, words: Sequence[str], globbing: Sequence[Globbing]) -> list[bool]:
    found: list[bool] = []
    is_first, is_value = True, False
    for at, word in enumerate(words):
        if word.startswith("-") and word != "-":
            found.append(options.is_harmless(word) and globbing[at] is not Globbing.FROM_START)
            is_value = word in options.skipped
            is_first = is_first and not options.bundled
            if options.modules and word == "-m" and at + 1 < len(words):
                rest = _arguments(_program(words[at + 1]), words[at + 2 :], globbing[at + 2 :])
                return [*found, _is_plain(words[at + 1], globbing[at + 1], options), *rest]
            continue
        is_plain = _is_plain(word, globbing[at], options)
        if is_value:
            found.append(is_plain)
            is_value = False
            continue
        if is_first and (options.subcommands or options.delegates):
            following = options.subcommands.get(word, UNKNOWN) if options.subcommands else _program(word)
            may_stand = word in options.shown if options.subcommands else bool(options.first.fullmatch(word))
            return [*found, is_plain and may_stand, *_arguments(following, words[at + 1 :], globbing[at + 1 :])]
        fits = options.first if is_first else options.operands
        is_known = fits is _ANYTHING or globbing[at] is Globbing.NONE
        found.append(is_plain and is_known and bool(fits.fullmatch(word)))
        is_first = False
    return found


def _is_plain(word: str, globbing: Globbing, options: Options) -> bool:
    """Whether the program must take an operand as an operand."""
    marks = ("-", "+") if options.names else ("-", "+", "@")
    return globbing is not Globbing.FROM_START and not word.startswith(marks) and not _ASSIGNMENT.match(word)


# --- the table -------------------------------------------------------------------------------------------------------

#: The options of an unknown program.
UNKNOWN = Options()
#: A program that runs its operands as commands, so a rule must spell them exactly.
RUNS = Options(operands=_NOTHING, first=_NOTHING)


def _options(flags: str = "", valued: str = "", long: str = "", words: str = "", **more: object) -> Options:
    return Options(flags, valued, _set(long), _set(words), **more)  # type: ignore[arg-type]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _of(options: Options, *names: str) -> dict[str, Options]:
    return dict.fromkeys(names, options)


#: A remote or branch, but no remote with a transport helper (`ext::`) and no deletion of a branch (`:x`).
_REMOTE = re.compile(r"(?!:)(?!.*::).*")

_COLOR = "color= no-color "
_DIFF = _options(
    "prRuwbBazMCtclmiEF",
    "UGSMCnL",
    _COLOR + "stat= numstat shortstat summary name-only name-status cached staged patch no-patch raw patch-with-stat"
    " word-diff= word-diff-regex= color-words= color-moved= diff-filter= unified= minimal patience histogram"
    " diff-algorithm= find-renames= find-copies= no-renames ignore-all-space ignore-space-change ignore-blank-lines"
    " ignore-space-at-eol ignore-cr-at-eol exit-code quiet check full-index abbrev= binary relative no-relative"
    " merge-base function-context inter-hunk-context= pickaxe-all no-prefix dirstat= compact-summary no-ext-diff"
    " no-textconv text ita-visible-in-index cc combined-all-paths",
    numbers=True,
)
_LOG = evolve(
    _DIFF,
    long=_DIFF.long
    | _set(
        "oneline graph all decorate= no-decorate pretty= format= abbrev-commit no-abbrev-commit since= until= after="
        " before= author= committer= grep= max-count= skip= reverse follow merges no-merges first-parent branches="
        " remotes= date= relative-date topo-order date-order author-date-order walk-reflogs left-right"
        " cherry-pick cherry-mark boundary simplify-by-decoration full-history parents children"
        " ancestry-path invert-grep all-match regexp-ignore-case extended-regexp fixed-strings perl-regexp notes="
        " no-notes source tags no-expand-tabs log-size"
    ),
    flags=_DIFF.flags + "gq",
)
_GIT_GREP = _options(
    "IinlcwEFPhHvLopW",
    "eABCm",
    _COLOR + "cached untracked no-index ignore-case line-number count word-regexp files-with-matches"
    " files-without-match name-only invert-match extended-regexp fixed-strings perl-regexp only-matching heading break"
    " show-function function-context and or not all-match max-depth= max-count= threads=",
    numbers=True,
)
_NETWORK = _options("qv", "", "quiet verbose all prune tags no-tags dry-run", operands=_REMOTE, first=_REMOTE)

_GIT = Options(
    flags="P",
    long=_set("no-pager no-optional-locks literal-pathspecs version"),
    skipped=_set("-C -c --git-dir --work-tree --namespace --config-env --super-prefix --attr-source"),
    subcommands={
        **_of(_DIFF, "diff", "diff-tree", "diff-index", "diff-files", "range-diff"),
        **_of(_LOG, "log", "show", "whatchanged", "rev-list", "shortlog"),
        "status": _options(
            "sbvuz",
            "u",
            "short branch porcelain= long verbose untracked-files= ignored= ignore-submodules= column= no-column"
            " ahead-behind no-ahead-behind renames no-renames find-renames= show-stash",
        ),
        "grep": _GIT_GREP,
        "blame": _options("wsnefltpbcMC", "LMC", _COLOR + "porcelain line-porcelain show-email date= since= abbrev="),
        "ls-files": _options(
            "cdmosuktvzi", "x", "cached deleted modified others stage exclude-standard ignored full-name"
        ),
        "ls-tree": _options("drtlz", "", "name-only name-status full-name full-tree long abbrev= object-only"),
        "cat-file": _options("tspe"),
        "describe": _options("", "", "tags all always long dirty= abbrev= contains match= exact-match first-parent"),
        "rev-parse": _options(
            "q",
            "",
            "short= abbrev-ref= verify quiet show-toplevel show-prefix show-cdup is-inside-work-tree is-bare-repository"
            " symbolic symbolic-full-name all branches= tags= git-dir git-common-dir absolute-git-dir",
        ),
        **_of(
            _options("ash", "", "all is-ancestor fork-point octopus heads tags hash= verify"), "merge-base", "show-ref"
        ),
        "for-each-ref": _options("", "", "format= sort= count= contains= merged= no-merged= points-at="),
        **_of(_options("", "", "tags name-only always all"), "name-rev", "check-ref-format"),
        "branch": _options(
            "avrlqi", "", "list all verbose remotes show-current contains= merged= no-merged= sort= format="
        ),
        "tag": _options("ln", "", "list sort= format= contains= merged= no-merged= column= points-at=", numbers=True),
        "remote": _options("v", "", "verbose", operands=_REMOTE),
        "stash": _options("pqu", "m", "patch quiet include-untracked stat message="),
        "add": _options("AunvN", "", "all update dry-run verbose intent-to-add no-all"),
        "rm": _options("rnq", "", "cached dry-run quiet"),
        "mv": _options("nvk", "", "dry-run verbose"),
        "commit": _options("aqvs", "m", "all message= quiet verbose signoff amend no-edit allow-empty dry-run"),
        **_of(_options("qb", "", "quiet detach create track no-track"), "checkout", "switch"),
        "restore": _options("qSWs", "", "quiet staged worktree source="),
        **_of(_NETWORK, "fetch", "pull", "push", "clone", "ls-remote"),
        **_of(RUNS, "config", "bisect", "submodule", "filter-branch", "difftool"),
        **_of(RUNS, "mergetool", "hook", "for-each-repo", "daemon", "send-email"),
    },
    shown=_set(
        "diff diff-tree diff-index diff-files range-diff log show whatchanged rev-list shortlog status grep blame"
        " ls-files ls-tree cat-file describe rev-parse merge-base show-ref for-each-ref name-rev check-ref-format"
    ),
)

_GREP = _options(
    "EFGPivwxcLlnoqsbHhTUaIrRzyZ",
    "eABCmdDf",
    _COLOR + "colour= include= exclude= exclude-dir= count files-with-matches files-without-match ignore-case"
    " no-ignore-case invert-match word-regexp line-regexp line-number only-matching quiet silent no-messages recursive"
    " with-filename no-filename max-count= context= after-context= before-context= extended-regexp fixed-strings"
    " perl-regexp basic-regexp text null regexp= line-buffered binary-files= version help",
    numbers=True,
)
_RG = _options(
    "sSiIFwxvclnNHhoUuLaPp0q",
    "eACBmgtTEMrdj",
    _COLOR
    + "files type= type-not= type-list glob= iglob= hidden no-hidden no-ignore no-ignore-vcs no-config json stats"
    " heading no-heading line-number no-line-number column vimgrep sort= sortr= max-count= max-depth= max-columns="
    " max-filesize= context= after-context= before-context= count count-matches files-with-matches files-without-match"
    " fixed-strings ignore-case case-sensitive smart-case word-regexp line-regexp invert-match multiline"
    " multiline-dotall pcre2 passthru pretty quiet replace= only-matching text trim unrestricted follow null regexp="
    " with-filename no-filename no-messages version help",
)
_FIND = _options(
    "LHP",
    "",
    "",
    "-name -iname -path -ipath -wholename -iwholename -type -xtype -maxdepth -mindepth -size -mtime -mmin -atime -amin"
    " -ctime -cmin -newer -newermt -anewer -cnewer -empty -prune -print -print0 -o -a -or -and -not -perm -user -group"
    " -uid -gid -nouser -nogroup -regex -iregex -regextype -follow -xdev -mount -readable -writable -executable -links"
    " -samefile -inum -daystart -depth -true -false -quit -ls -printf -lname -ilname",
)
_LS = _options(
    "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
    "IwT",
    _COLOR + "all almost-all human-readable recursive reverse sort= time= time-style= size inode directory classify="
    " group-directories-first full-time ignore= hide= no-group numeric-uid-gid width= format= si version help",
)
_PYTEST = _options(
    "qvsxlh",
    "rkmn",
    _COLOR + "maxfail= tb= durations= durations-min= collect-only co lf last-failed ff failed-first nf new-first sw"
    " stepwise stepwise-skip exitfirst verbose quiet no-header no-summary strict-markers strict-config showlocals"
    " no-showlocals disable-warnings deselect= ignore= ignore-glob= capture= markers fixtures fixtures-per-test version"
    " help runxfail setup-show setup-only setup-plan full-trace show-capture= numprocesses= dist= timeout= verbosity=",
)
_CARGO_WORK = _options(
    "qvr",
    "pFj",
    _COLOR + "quiet verbose release all workspace lib bins tests examples benches all-targets all-features"
    " no-default-features locked offline frozen no-run no-fail-fast nocapture test-threads= ignored include-ignored"
    " exact show-output message-format= package= exclude= test= bin= example= bench= features= jobs= keep-going doc"
    " profile= check list depth= duplicates invert= edges= prefix= no-deps format-version=",
)
_GO_WORK = _options(
    words="-v -run -bench -count -short -race -cover -timeout -failfast -json -x -n -tags -parallel -cpu -benchmem"
    " -skip -shuffle -list -run= -bench= -count= -short= -race= -cover= -timeout= -failfast= -json= -tags= -parallel="
    " -cpu= -benchmem= -skip= -shuffle= -list= -m -u -mod=readonly -mod=vendor -f -a -trimpath -buildvcs=false",
)
_NPM_LIST = _options("al", "", "all long json parseable depth= silent production omit= include= prod dev", names=True)
_NPM_RUN = _options("s", "", "silent if-present workspaces workspace=")
_NPM_INSTALL = _options("DE", "", "save-dev save-exact save no-audit no-fund ignore-scripts dry-run silent", names=True)
_NPM = Options(
    flags="sv",
    long=_set("silent version"),
    subcommands={
        **_of(_NPM_LIST, "ls", "list", "outdated", "view", "info", "why", "explain", "audit"),
        **_of(_NPM_RUN, "run", "run-script", "test", "t"),
        **_of(_NPM_INSTALL, "install", "i", "add", "ci", "uninstall", "remove"),
        **_of(RUNS, "exec", "x", "dlx", "create", "init", "explore", "config", "set", "node"),
    },
    shown=_set("ls list outdated view info why explain"),
)
_PIP = Options(
    flags="qvV",
    long=_set("quiet verbose version"),
    subcommands={
        **_of(
            _options("qvlou", "", "quiet verbose outdated uptodate format= local user not-required files"),
            "list",
            "show",
        ),
        **_of(_options("ql", "", "quiet local all user"), "freeze", "check"),
        **_of(_options("qvU", "", "quiet verbose upgrade no-deps dry-run no-input"), "install", "download"),
        "uninstall": _options("qyv", "", "quiet yes"),
        "config": RUNS,
    },
    shown=_set("list show freeze check"),
)
_DOCKER_SHOW = _options(
    "aqntfs", "n", "all quiet no-trunc format= filter= tail= since= until= timestamps follow last= latest size digests"
)
_DOCKER = Options(
    flags="v",
    long=_set("version"),
    skipped=_set("-H --host --config -c --context -l --log-level"),
    subcommands={
        **_of(_DOCKER_SHOW, "ps", "images", "logs", "inspect", "version", "info", "top", "port", "history", "stats"),
        **_of(RUNS, "run", "exec", "create", "build", "buildx", "cp", "compose", "plugin", "commit", "load", "import"),
    },
    shown=_set("ps images logs inspect version info top port history stats"),
)
_GH_SHOW = _options(
    "cv",
    "LRsABl",
    "limit= repo= state= author= assignee= label= json= comments log log-failed verbose name-only patch base= head="
    " search= jq= template=",
)
_GH_TOPIC = Options(
    subcommands=_of(_GH_SHOW, "view", "list", "ls", "status", "diff", "checks"),
    shown=_set("view list ls status diff checks"),
)
_GH = Options(
    long=_set("version"),
    subcommands={
        **_of(_GH_TOPIC, "pr", "issue", "run", "repo", "release", "workflow", "label", "gist", "cache"),
        **_of(RUNS, "api", "alias", "extension", "config", "auth"),
        **_of(RUNS, "codespace", "cs", "ssh-key", "secret", "variable"),
    },
    # Their subcommands decide.
    shown=_set("pr issue run repo release workflow label gist cache"),
)
_KUBECTL_SHOW = _options(
    "Awpf",
    "nlcoL",
    "namespace= all-namespaces selector= watch show-labels container= tail= since= previous follow all-containers"
    " timestamps output= no-headers sort-by= recursive containers",
)
_KUBECTL = Options(
    skipped=_set("-n --namespace --context --cluster --user --kubeconfig -s --server --token"),
    valued="n",
    long=_set("namespace="),
    subcommands={
        **_of(_KUBECTL_SHOW, "get", "describe", "logs", "top", "version", "explain", "api-resources", "cluster-info"),
        **_of(
            RUNS, "exec", "run", "cp", "debug", "attach", "plugin", "config", "proxy", "port-forward", "edit", "krew"
        ),
    },
    shown=_set("get describe logs top version explain api-resources cluster-info"),
)
_UV = Options(
    flags="qv",
    long=_set("quiet verbose offline version"),
    subcommands={
        "pip": _PIP,
        "run": _options("qv", "", "quiet verbose frozen locked offline no-sync", delegates=True, first=_NOTHING),
        **_of(_options("qv", "", "quiet verbose frozen locked offline"), "sync", "lock", "tree", "version"),
        **_of(RUNS, "tool", "python", "init", "build", "publish"),
    },
    shown=_set("tree version"),
)

#: A script of sed that prints, deletes or quits by line numbers, or one substitution that neither writes nor runs.
_SED = re.compile(r"[0-9,$]*[pdq=]|s([/|#,:])(?:(?!\1)[^\\\n]|\\[^\n])*\1(?:(?!\1)[^\\\n]|\\[^\n])*\1[gpiI0-9]*")
#: An awk program that is only a pattern; and a further operand, which must not be a program with `@load`.
_AWK = re.compile(r"/[^/\\\"]*/")
_AWK_FILE = re.compile(r"(?!\s*@).*")
#: A target of make, but no assignment of any form (`.SHELLFLAGS=x`, `X != command`).
_TARGET = re.compile(r"[^=]*")
#: The first word of tar, without a dash, if it only lists an archive.
_TAR = re.compile(r"[vzjJaf]*t[vzjJaf]*")

TABLE: dict[str, Options] = {
    "git": _GIT,
    "find": _FIND,
    **_of(_GREP, "grep", "egrep", "fgrep", "zgrep"),
    "rg": _RG,
    **_of(_LS, "ls", "dir", "vdir"),
    "cat": _options("AbeEnstTuv"),
    **_of(_options("qvz", "nc", "lines= bytes= quiet silent verbose", numbers=True), "head", "tail"),
    "wc": _options("clmwL", "", "bytes chars lines words max-line-length"),
    "echo": _options("neE"),
    "stat": _options("Lft", "c", "format= printf= dereference file-system terse"),
    "file": _options("bikLzh", "", "brief mime mime-type mime-encoding"),
    "du": _options("hsackxbLm", "d", "human-readable summarize all total max-depth= apparent-size exclude="),
    "df": _options("hkiTlaP", "", "human-readable inodes print-type local all"),
    "diff": _options("urqNbBwaiyts", "UC", _COLOR + "unified= context= recursive brief side-by-side ignore-case"),
    "cmp": _options("sbl"),
    "cut": _options("szn", "dfcb", "delimiter= fields= characters= bytes= only-delimited complement"),
    "uniq": _options("cduiz", "fsw", "count repeated unique ignore-case", operands=_NOTHING),
    "tree": _options("adfilpsughDFrtUcAC", "LPI", "dirsfirst noreport prune gitignore"),
    "sort": _options(
        "bdfghiMnRrVcCmsuz",
        "kt",
        "reverse unique numeric-sort human-numeric-sort version-sort general-numeric-sort month-sort ignore-case"
        " ignore-leading-blanks dictionary-order stable check= key= field-separator= zero-terminated random-sort",
    ),
    **_of(_options("nErsuz", "", "quiet silent regexp-extended separate null-data", first=_SED), "sed", "gsed"),
    **_of(_options("", "F", "field-separator=", first=_AWK, operands=_AWK_FILE), "awk", "gawk", "mawk", "nawk"),
    **_of(
        _options(
            "tvfzjJa", "", "list verbose file gzip bzip2 xz", first=_TAR, operands=re.compile(r"[^:]*"), bundled=True
        ),
        "tar",
        "gtar",
        "bsdtar",
    ),
    **_of(
        _options(
            "kBisrRnqSw",
            "j",
            "jobs= keep-going silent quiet dry-run always-make no-print-directory print-directory output-sync= question"
            " ignore-errors no-builtin-rules no-builtin-variables version",
            first=_TARGET,
            operands=_TARGET,
        ),
        *("make", "gmake", "bmake", "pmake", "nmake", "remake", "mingw32-make"),
    ),
    **_of(_NPM, "npm", "yarn", "pnpm"),
    **_of(Options(delegates=True, first=_NOTHING), "npx", "pnpx", "bunx", "uvx", "pipx"),
    "cargo": Options(
        flags="qv",
        long=_set("quiet verbose version offline locked frozen list"),
        skipped=_set("-C --config -Z --color"),
        subcommands=_of(_CARGO_WORK, "check", "test", "build", "clippy", "bench", "doc", "tree", "metadata", "fmt"),
        shown=_set("check test build clippy bench doc tree metadata"),
    ),
    "go": Options(
        skipped=_set("-C"),
        subcommands={
            **_of(_GO_WORK, "test", "build", "vet", "list", "version", "doc", "env"),
            **_of(RUNS, "tool", "generate"),
        },
        shown=_set("test build vet list version doc"),
    ),
    **_of(_PYTEST, "pytest", "py.test"),
    **_of(Options(flags="BuEsIV", long=_set("version"), modules=True, delegates=True), "python", "pypy", "py"),
    "pip": _PIP,
    "uv": _UV,
    **_of(Options(flags="v", long=_set("version test check"), delegates=True), "node", "nodejs"),
    **_of(_DOCKER, "docker", "podman"),
    "curl": _options("sSfLIiv46", "m", "silent show-error fail location head include verbose compressed max-time"),
    "wget": _options("qv", "", "spider quiet no-verbose server-response"),
    "rsync": _options(
        "avznhrlti", "", "archive verbose dry-run stats progress itemize-changes human-readable recursive"
    ),
    "tee": _options("a", "", "append"),
    **_of(_options("NSRFXiIMmqsGJ", "", "chop-long-lines quit-if-one-screen"), "less", "more", "most"),
    "man": _options("kfwa"),
    "gh": _GH,
    **_of(_KUBECTL, "kubectl", "oc"),
    **_of(
        RUNS,
        *_set(
            "env xargs parallel sudo doas su nohup timeout time nice ionice stdbuf watch setsid script strace ltrace"
            " gdb lldb exec eval command builtin source . sh bash zsh dash ksh fish csh tcsh busybox entr flock"
            " unbuffer expect chroot unshare nsenter systemd-run at batch crontab ssh scp sftp mosh autossh rsh"
            " find2perl osascript open xdg-open start cmd powershell pwsh"
        ),
    ),
}

#: Characters that can make a command more than one program with its words: operators, substitutions, redirections,
#: grouping, further lines. They never match, even quoted, because another shell may interpret the text again.
_ACTIVE = frozenset(";&|<>$`(){}\n\r\0")

_FLAGS = fnmatch.CASE | fnmatch.DOTMATCH | fnmatch.FORCEUNIX

#: A word with its quotes; and the empty quotes that a word may begin with.
_RAW = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
_EMPTY = re.compile(r"""(?:''|"")*""")
#: The parts of a word in which a shell sees no wildcard.
_LITERAL = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*\"""")
_WILD = ("*", "?", "[")


@frozen
class Command:
    """A single plain command. For each of its `words`, `globbing` says what a shell may replace it with, and
    `harmless` whether a rule's wildcard may match it."""

    words: tuple[str, ...]
    globbing: tuple[Globbing, ...]
    harmless: tuple[bool, ...]


def read(command: str, args: Sequence[str] = ()) -> Command | None:
    """Parse `command` followed by `args`; None if that is not a single plain command."""
    found = words(command, args)
    if found is None:
        return None
    # A shell may replace a glob with a file that is named like an option. The quoting of `args` is not known.
    globbing = [*map(_globbing, _RAW.findall(command)), *map(_globbing, args)]
    if len(globbing) != len(found):
        globbing = [Globbing.FROM_START] * len(found)
    return Command(found, tuple(globbing), harmless(found, globbing))


def _globbing(raw: str) -> Globbing:
    """Return what a shell may replace a word with; `raw` still has its quotes."""
    if _EMPTY.sub("", raw, count=1).startswith(_WILD):
        return Globbing.FROM_START
    return Globbing.WITHIN if _is_glob(_LITERAL.sub("", raw)) else Globbing.NONE


def words(command: str, args: Sequence[str] = ()) -> tuple[str, ...] | None:
    """Return the words of `command` followed by `args`; None if that is not a single plain command."""
    if any(char in _ACTIVE or not char.isprintable() for part in (command, *args) for char in part):
        return None
    try:
        # A shell does not run what follows `#`, so it is safe to treat it as words.
        named = shlex.split(command, comments=False)
    except ValueError:
        return None
    return (*named, *args) if named else None


def matches(pattern: str, command: Command) -> bool:
    """Whether the words of the glob `pattern` match those of `command`, one to one.

    `*`, `?` and `[...]` stay within a word and do not leave the directory that the glob names (`bin/*` does not match
    `bin/../x`). A last word of `*` matches any number of further words. Wildcards match harmless words only; a rule
    must spell any other word exactly.
    """
    expected, given = _pattern_words(pattern), command.words
    if expected is None:
        return False
    open_ended = expected[-1] == "*"
    fixed = expected[:-1] if open_ended else expected
    if len(given) < max(len(fixed), 1) or (len(given) > len(fixed) and not open_ended):
        return False
    fits = (
        word == glob if not _is_glob(glob) else is_harmless and _fits(word, glob)
        for word, is_harmless, glob in zip(given, command.harmless, fixed, strict=False)
    )
    return all(fits) and all(command.harmless[len(fixed) :])


def _fits(word: str, glob: str) -> bool:
    if not glob.startswith(_WILD) and word.split("/").count("..") > glob.split("/").count(".."):
        return False
    return fnmatch.fnmatch(word, glob, flags=_FLAGS)


def _is_glob(word: str) -> bool:
    return any(char in word for char in _WILD)


@functools.lru_cache(maxsize=4096)
def _pattern_words(pattern: str) -> tuple[str, ...] | None:
    return words(pattern)


def allowed(allowlist: Sequence[str], given: Sequence[str]) -> bool:
    """Whether the words `given` begin with those of a command on the server's allowlist."""
    for entry in allowlist:
        listed = words(entry)
        if listed is not None and tuple(given[: len(listed)]) == listed:
            return True
    return False
