//! The checks that were not run: collected wherever a task finds out, and told once more at its
//! end.
//!
//! Some checks cannot run on every machine, which by design is no failure: a processor lacks
//! instructions, rustup offers no other target. Nor is it a success. So whoever leaves a check out
//! says so here, and the task's last line says that everything passed only if nothing is listed.

use std::fmt;

/// The mark that begins each line that tells of such a check. `rma_lab::evidence` and the tests of
/// `rma-crypto` write it as well.
const MARK: &str = "NOT RUN: ";

/// The checks that a task left out, in the order in which it found out, each once.
#[derive(Debug, Default)]
pub(crate) struct NotRun {
    checks: Vec<String>,
}

impl NotRun {
    /// Notes a check that is left out, as a phrase that says which one and why, and prints it where
    /// it would have run.
    pub(crate) fn add(&mut self, what: impl fmt::Display) {
        println!("{MARK}{what}");
        self.note(&what.to_string());
    }

    /// Takes what a test says in this line of output. The harness may have begun the line.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some((_, what)) = line.split_once(MARK) {
            self.note(what);
        }
    }

    fn note(&mut self, what: &str) {
        // Each test of a provider says that it was not run with it.
        if !self.checks.iter().any(|known| known == what) {
            self.checks.push(what.to_owned());
        }
    }

    /// The end of a task, whatever became of it: prints all of them together, and if it did not
    /// fail a last line that says how much passed.
    ///
    /// # Errors
    /// `result`'s own.
    pub(crate) fn conclude<E>(&self, result: Result<(), E>) -> Result<(), E> {
        if !self.checks.is_empty() {
            println!("\n== not run ==\n{}", self.checks.join("\n"));
        }
        result?;
        println!("\n{}", self.verdict());
        Ok(())
    }

    fn verdict(&self) -> String {
        match self.checks.len() {
            0 => "everything passed".to_owned(),
            1 => "all that ran passed; 1 check was not run, and is listed above".to_owned(),
            more => {
                format!("all that ran passed; {more} checks were not run, and are listed above")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_passed_only_if_nothing_was_left_out() {
        let mut not_run = NotRun::default();
        assert_eq!(not_run.verdict(), "everything passed");
        not_run.add("the object was not rebuilt: no BPF tools here");
        assert!(!not_run.verdict().contains("everything"), "{}", not_run.verdict());
    }

    #[test]
    fn a_tests_word_is_noted_once_wherever_the_harness_is_in_its_line() {
        let mut not_run = NotRun::default();
        for line in [
            "NOT RUN: vaes512 needs avx512f",
            "test all_lengths ... NOT RUN: vaes512 needs avx512f",
            "test what_is_not_run_is_told ... ok",
            "NOT RUN: vaes256 needs vaes",
        ] {
            not_run.read(line);
        }
        assert_eq!(not_run.checks, ["vaes512 needs avx512f", "vaes256 needs vaes"]);
    }
}
