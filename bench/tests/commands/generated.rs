//! Man pages and completions, as packages have them: each option is in all of them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

fn run(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rma-bench")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The options that `--help` lists, each on a line that begins with it.
fn options(help: &str) -> BTreeSet<&str> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.flat_map(|line| line.split([' ', ',', '.', '=', '[']));
    let is_option = |word: &&str| word.starts_with("--") && !word.ends_with('`');
    words.filter(is_option).collect()
}

/// The commands that `--help` lists.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|it| *it != "help").collect()
}

#[test]
fn man_pages_and_completions_name_each_option_of_each_command() {
    let folder = std::env::temp_dir().join(format!("rma-generated-{}", std::process::id()));
    let out = folder.to_str().unwrap();
    run(&["generate", "man", "--out", out]);
    let files = ["rma-bench.bash", "_rma-bench", "rma-bench.fish"];
    for shell in ["bash", "zsh", "fish"] {
        run(&["generate", "completions", "--shell", shell, "--out", out]);
    }
    let read = |name: &str| fs::read_to_string(Path::new(out).join(name)).unwrap();
    let completions = files.map(read);
    let help = run(&["--help"]);
    let mut pages = BTreeSet::from(["rma-bench.1".to_owned()]);
    for command in commands(&help) {
        let name = format!("rma-bench-{command}.1");
        let page = read(&name).replace("\\-", "-");
        let help = run(&[command, "--help"]);
        let options = options(&help);
        assert!(options.len() > 2, "{help}");
        for option in options {
            assert!(page.contains(option), "{name} has no {option}");
            let word = option.trim_start_matches('-');
            let is_there = completions.iter().all(|it| it.contains(word));
            assert!(is_there, "{option} of {command} is not completed");
        }
        pages.insert(name);
    }
    assert!(read("rma-bench.1").contains("serve") && pages.len() > 5);
    let there = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name());
    let there = there.map(|name| name.into_string().unwrap());
    let there: BTreeSet<_> = there.filter(|name| name.ends_with(".1")).collect();
    assert_eq!(there, pages, "no page of what is hidden");
    fs::remove_dir_all(&folder).unwrap();
}
