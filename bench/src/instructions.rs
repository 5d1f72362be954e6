//! How many instructions the turns of a READ are: a count that no machine's speed and no other
//! program changes.
//!
//! valgrind counts them in the example `turn`, which is to lie where cargo puts it: beside this
//! program. What it counts depends on the compiler, hardly on the processor, as it emulates one of
//! its own.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Batches that are run, and the READs of each.
const RUN: [u64; 2] = [200, 32];

/// The turns of both sides for one READ, in instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instructions {
    /// The side that reads.
    pub initiator: f64,
    /// The side that is read.
    pub responder: f64,
}

impl Instructions {
    /// Both sides together.
    #[must_use]
    pub const fn sum(self) -> f64 {
        self.initiator + self.responder
    }
}

/// Counts them. `None` if this machine has no valgrind, or the example was not built.
///
/// # Errors
/// If they are there and do not do what they should.
pub fn of_a_read() -> io::Result<Option<Instructions>> {
    let program = std::env::current_exe()?;
    let Some(example) = program.parent().map(|folder| folder.join("examples/turn")) else {
        return Ok(None);
    };
    let version = Command::new("valgrind").arg("--version").output();
    if !example.exists() || !version.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let [initiator, responder] =
        ["*initiator_turn*", "*responder_turn*"].map(|turns| counted(&example, turns));
    Ok(Some(Instructions { initiator: initiator?, responder: responder? }))
}

/// The instructions of what is called `turns`, and of all that it calls, for a READ.
fn counted(example: &Path, turns: &str) -> io::Result<f64> {
    let out = Out(std::env::temp_dir().join(format!("rma-turns-{}", std::process::id())));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--toggle-collect={turns}")])
        .arg(format!("--callgrind-out-file={}", out.0.display()))
        .arg(example)
        .args(["one", "fastest"])
        .args(RUN.map(|number| number.to_string()))
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let count = summary(&fs::read_to_string(&out.0)?)
        .ok_or_else(|| io::Error::other("valgrind counted nothing; look at its version"))?;
    Ok(count as f64 / RUN.iter().product::<u64>() as f64)
}

/// The count in what valgrind has written.
fn summary(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("summary: ")?.trim().parse().ok())
}

/// A file that goes when it has been read.
struct Out(PathBuf);

impl Drop for Out {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_valgrind_writes() {
        let text = "version: 1\ncreator: callgrind\npositions: line\nsummary: 18833506\nfn=(1)\n";
        assert_eq!(summary(text), Some(18_833_506));
        assert_eq!(summary("version: 1\n"), None);
    }
}
