//! How many instructions the turns of a READ are, and what a receiver does for a message: counts
//! that no machine's speed and no other program changes.
//!
//! valgrind counts them in the examples `turn`, `turn_beside`, `receive` and `star`, which must lie
//! where cargo puts them: beside this program. What it counts depends on the compiler, hardly on
//! the processor, as it emulates one of its own.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::channels::receiving::BATCH;

/// Batches that are run, and the READs of each.
const RUN: [u64; 2] = [200, 32];
/// Batches of messages that are received: several rings full, also of the smallest.
const BATCHES: u64 = 400;

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
    of_a_read_by("turn")
}

/// As [`of_a_read`], by engines that serve another service as well, which is idle.
///
/// # Errors
/// As [`of_a_read`].
pub fn of_a_read_beside_another() -> io::Result<Option<Instructions>> {
    of_a_read_by("turn_beside")
}

fn of_a_read_by(name: &str) -> io::Result<Option<Instructions>> {
    let Some(example) = example(name)? else { return Ok(None) };
    let run = RUN.map(|number| number.to_string());
    let args = ["one", "fastest", &run[0], &run[1]];
    let reads = RUN.iter().product::<u64>() as f64;
    let [initiator, responder] = ["*initiator_turn*", "*responder_turn*"]
        .map(|turns| counted(&example, turns, &args).map(|count| count as f64 / reads));
    Ok(Some(Instructions { initiator: initiator?, responder: responder? }))
}

/// Counts what the receiver of a ring, with or without zeroing, does for a message of `size` bytes,
/// which its engine's turns are no part of: it finds, copies and frees it, and tells the tail.
/// `None` if this machine has no valgrind, or the example was not built.
///
/// # Errors
/// If they are there and do not do what they should.
pub fn of_a_message(zeroing: bool, size: u32) -> io::Result<Option<f64>> {
    let Some(example) = example("receive")? else { return Ok(None) };
    let ring = if zeroing { "with" } else { "without" };
    let (size, batches) = (size.to_string(), BATCHES.to_string());
    let count = counted(&example, "*receiver_look*", &[ring, &size, &batches])?;
    Ok(Some(count as f64 / (BATCHES * BATCH) as f64))
}

/// Calls of StaR that are counted.
const CALLS: u64 = 2000;

/// Counts what the engine of a stateless side of StaR does for a call, one after the other, each on
/// any of so many connections. `None` if this machine has no valgrind, or the example was not
/// built.
///
/// # Errors
/// If they are there and do not do what they should.
pub fn of_a_star_call(connections: u32) -> io::Result<Option<f64>> {
    let Some(example) = example("star")? else { return Ok(None) };
    let args = ["calls", &connections.to_string(), &CALLS.to_string()];
    let count = counted(&example, "*stateless_turn*", &args)?;
    Ok(Some(count as f64 / CALLS as f64))
}

/// Returns the path of an example, if it was built, and valgrind can run it.
fn example(name: &str) -> io::Result<Option<PathBuf>> {
    let program = std::env::current_exe()?;
    let example = program.parent().map(|folder| folder.join("examples").join(name));
    let version = Command::new("valgrind").arg("--version").output();
    let has_valgrind = version.is_ok_and(|output| output.status.success());
    Ok(example.filter(|example| example.exists() && has_valgrind))
}

/// The instructions of what is called `function`, and of all that it calls.
fn counted(example: &Path, function: &str, args: &[&str]) -> io::Result<u64> {
    let out = Out(std::env::temp_dir().join(format!("rma-turns-{}", std::process::id())));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--toggle-collect={function}")])
        .arg(format!("--callgrind-out-file={}", out.0.display()))
        .arg(example)
        .args(args)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    summary(&fs::read_to_string(&out.0)?)
        .ok_or_else(|| io::Error::other("valgrind counted nothing; look at its version"))
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
