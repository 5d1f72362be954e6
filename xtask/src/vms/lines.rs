//! The lines of a process, read by a thread of its own so that waiting for it can end.
//!
//! There is one bound for waiting, and it is generous: a machine that says nothing for so long says
//! nothing any longer. Nothing here judges how long anything took.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use super::error::Trouble;

/// How long a silence may last. A machine boots in five seconds, on two cores that do nothing else.
/// Shorter: a busy computer looks like a broken kernel. Longer: who waits for a broken one waits
/// longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// The lines of one process.
#[derive(Debug)]
pub(super) struct Lines {
    host: String,
    lines: Receiver<String>,
    /// All that came, for whom it may concern.
    pub(super) heard: Vec<String>,
}

impl Lines {
    /// Reads `from` until it ends.
    pub(super) fn of(host: &str, from: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n') {
                // An end like any other: who waits is told that nothing comes any longer.
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { host: host.to_owned(), lines, heard: Vec::new() }
    }

    /// The next line; `None` if it has ended.
    ///
    /// # Errors
    /// If nothing comes for too long.
    pub(super) fn next(&mut self, waiting_for: &str) -> Result<Option<String>, Trouble> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.heard.push(line.clone());
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(Trouble::Silent {
                host: self.host.clone(),
                seconds: PATIENCE.as_secs(),
                waiting_for: waiting_for.to_owned(),
            }),
        }
    }
}
