//! The other host, in a process of its own that can be stopped: this test program once more, told
//! by its environment which part to play.
//!
//! Both processes talk in lines. A peer ends with the [`Peer`] that started it, also if that
//! panics, and with the process that started it, however that ends.

use core::time::Duration;
use std::{
    fs::File,
    io::{BufRead, BufReader, Write, stdin, stdout},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
};

use rma_lab::Scratch;
use rma_xdp::time::{Clock, TscClock};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};

use super::hosts::{Network, Place, Side};

/// Tells a process that it is the other host, and which.
const PART: &str = "RMA_STOPPED_ENGINE_PART";

/// The mark that begins the lines of the other host, among those of the test harness.
const MARK: &str = "peer: ";

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The facts that a process must know to be the other host.
pub(crate) struct Part {
    pub(crate) side: Side,
    pub(crate) network: Network,
    /// The target's; an initiator wants to know it.
    pub(crate) region: u32,
    /// Of its message counter.
    pub(crate) state_dir: PathBuf,
}

impl Part {
    /// The part of this process, if it is the other host.
    pub(crate) fn of_this_process() -> Option<Self> {
        let part = std::env::var(PART).ok()?;
        set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        let words: Vec<&str> = part.splitn(8, ' ').collect();
        let [side, region, ref network @ .., state_dir] = words[..] else {
            panic!("too few words: {part}");
        };
        Some(Self {
            side: Side::named(side).unwrap(),
            network: Network::of_words(network.try_into().expect("eight words")),
            region: region.parse().unwrap(),
            state_dir: state_dir.into(),
        })
    }
}

/// Reads the orders of the process that started this one, until it closes the pipe.
pub(crate) fn orders() -> impl Iterator<Item = String> {
    stdin().lines().map_while(Result::ok)
}

/// Says a line to the process that started this one. An error means that it is gone, and then this
/// one ends too.
pub(crate) fn answer(line: &str) {
    let mut out = stdout().lock();
    // The harness may have left a line open.
    let _ = out.write_all(format!("\n{MARK}{line}\n").as_bytes());
    let _ = out.flush();
}

/// Calls `condition` until it holds.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = TscClock::new();
    while !condition() {
        let waited = Duration::from_nanos(clock.now().as_nanos());
        assert!(waited < PATIENCE, "{what}: waited for {waited:?}");
        thread::yield_now();
    }
}

/// The process of the other host.
pub(crate) struct Peer {
    child: Child,
    heard: Receiver<String>,
    /// Of its message counter. Removed after the process has ended, which it does in no orderly
    /// way.
    _state_dir: Scratch,
}

impl Peer {
    /// Starts test `name` in a process that must be host `side`. An initiator is told the target's
    /// region.
    pub(crate) fn start(place: &Place, name: &str, side: Side, region: u32) -> Self {
        let state_dir = Scratch::new();
        let network = place.network.words();
        let part = format!("{side:?} {region} {network} {}", state_dir.path().display());
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = ["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"];
        command.args(test).env(PART, part).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = {
            let _inside = place.enter(side);
            command.spawn().unwrap()
        };
        let (say, heard) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Ends with the process that it listens to.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(MARK) {
                    let _ = say.send(line.to_owned());
                }
            }
        });
        Self { child, heard, _state_dir: state_dir }
    }

    /// The next line that it has said, if there is one: its words.
    pub(crate) fn try_hear(&self) -> Option<Vec<String>> {
        match self.heard.try_recv() {
            Ok(line) => Some(line.split(' ').map(str::to_owned).collect()),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the other host has ended"),
        }
    }

    /// The numbers after `word` in the next line that it says.
    pub(crate) fn hear(&self, word: &str) -> Vec<u64> {
        let mut heard = None;
        wait_for(word, || {
            heard = self.try_hear();
            heard.is_some()
        });
        let heard = heard.unwrap();
        assert_eq!(heard[0], word, "{heard:?}");
        heard[1..].iter().map(|number| number.parse().unwrap()).collect()
    }

    /// The name of the region that a target has registered.
    pub(crate) fn hear_region(&self) -> u32 {
        let [region] = self.hear("region").try_into().unwrap();
        u32::try_from(region).unwrap()
    }

    pub(crate) fn order(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Stops it (SIGSTOP). None of its threads runs any more when this returns.
    pub(crate) fn stop(&self) {
        kill_process(self.id(), Signal::STOP).unwrap();
        let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
        wait_for("the other host stops", || match waitpid(Some(self.id()), options).unwrap() {
            Some((_, status)) => {
                assert!(status.stopped(), "the other host has ended: {status:?}");
                true
            }
            None => false,
        });
    }

    /// Lets it go on (SIGCONT).
    pub(crate) fn go_on(&self) {
        kill_process(self.id(), Signal::CONT).unwrap();
    }

    /// Ends it (SIGKILL) and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // Also ends a process that is stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its memory from the page on that begins with `magic`.
    pub(crate) fn memory_at(&self, magic: &[u8; 32]) -> Memory {
        let pid = self.child.id();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let file = File::open(format!("/proc/{pid}/mem")).unwrap();
        let mut found = Vec::new();
        for map in maps.lines().filter(|map| map.contains(" rw-p ")) {
            let (start, rest) = map.split_once('-').unwrap();
            let (end, _) = rest.split_once(' ').unwrap();
            let [start, end] = [start, end].map(|it| u64::from_str_radix(it, 16).unwrap());
            let is_magic = |&page: &u64| {
                let mut bytes = [0; 32];
                file.read_exact_at(&mut bytes, page).is_ok() && bytes == *magic
            };
            found.extend((start..end).step_by(4096).filter(is_magic));
        }
        assert_eq!(found.len(), 1, "one page of the other host begins so: {found:x?}");
        Memory { file, start: found[0] }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Memory of another process, which may be stopped or running.
pub(crate) struct Memory {
    file: File,
    start: u64,
}

impl Memory {
    pub(crate) fn look(&self, offset: u64, bytes: &mut [u8]) {
        self.file.read_exact_at(bytes, self.start + offset).unwrap();
    }
}
