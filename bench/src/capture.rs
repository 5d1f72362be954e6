//! `rma-bench capture`: the packets of a host that runs, as a file; and `--capture`, those of a
//! host of this program.

use core::time::Duration;
use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use clap::Args;
use rma_keys::io::clock::now;
use rma_xdp::{
    HostOf,
    capture::{
        Capture, CaptureConfig, CaptureError, DIRECTORY, WholeFile, packets_in, whole_blocks,
    },
    engine::EngineKind,
};

use crate::{interrupt::Interrupt, line};

/// How often it is looked whether the capture should end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a host may take for the end of a capture.
const END_WITHIN: Duration = Duration::from_secs(3);

/// Octets that are kept of each packet, if nothing else is said: the headers of a lone frame.
pub(crate) const SNAP: u32 = 128;

/// Arguments of `capture`.
#[derive(Args, Clone, Debug)]
pub struct CaptureArgs {
    /// The process of the host, or its socket. Default: the one that there is.
    #[arg(value_name = "PID|SOCKET")]
    host: Option<String>,
    /// File to write, as pcapng.
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Octets that are kept of each packet, headers included. 0: times, lengths and verdicts alone.
    #[arg(long, value_name = "OCTETS", default_value_t = SNAP, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    snap: u32,
    /// End after so many packets. Default: go on until Ctrl-C, or the host's end.
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds.
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "count", value_parser = clap::value_parser!(u64).range(1..))]
    duration: Option<u64>,
    /// Directory of the sockets, for numbers of processes.
    #[arg(long, value_name = "DIRECTORY", default_value = DIRECTORY)]
    directory: PathBuf,
}

/// The reason why a host cannot be captured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CapturingError {
    /// There is no socket of a host, or several.
    #[error(
        "there are {count} hosts in {}, {}; name one: rma-bench capture PID", directory.display(),
        if *count == 0 { "as none of this machine runs `rma-bench serve` or serves captures itself" }
        else { "each a number and .sock" }
    )]
    Which {
        /// The directory that was looked into.
        directory: PathBuf,
        /// How many there are.
        count: usize,
    },
    /// The socket is not there.
    #[error(
        "no host at {}: look whether the process runs and serves captures, as `rma-bench serve` does", path.display()
    )]
    NoHost {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The host that had the socket is gone.
    #[error("the host of {} is gone: start it again, and name its new process", path.display())]
    Gone {
        /// The socket that it left behind.
        path: PathBuf,
    },
    /// Another user's.
    #[error("{} belongs to another user: capture as that user, or as root with sudo", path.display())]
    Forbidden {
        /// The socket, with its owner and mode.
        path: PathBuf,
    },
    /// The host refuses.
    #[error("the host refuses: {reason}")]
    Refused {
        /// The host's own words.
        reason: String,
    },
    /// The file cannot be written.
    #[error("{} cannot be written: {source}; {packets} packets are in it, whole", path.display())]
    Write {
        /// The file of the capture.
        path: PathBuf,
        /// How many packets are in it.
        packets: u64,
        /// The error of the system.
        source: io::Error,
    },
    /// The host ended, or was killed.
    #[error("the host has ended: {packets} packets are in {}, which is whole", path.display())]
    HostEnded {
        /// The file of the capture.
        path: PathBuf,
        /// How many packets are in it.
        packets: u64,
    },
    /// The connection failed otherwise.
    #[error("talking to the host at {}: {source}", path.display())]
    System {
        /// The socket of the host.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A host of this program.
    #[error(transparent)]
    Own(#[from] CaptureError),
}

/// Captures until interrupted, or as long as was asked for.
///
/// # Errors
/// If there is no such host, it refuses, the file cannot be written, or the host ends before.
pub fn capture(args: &CaptureArgs, interrupt: &Interrupt) -> Result<(), CapturingError> {
    let socket = socket(args)?;
    let stream = ask(&socket, args.snap)?;
    let path = args.write.clone();
    let file = WholeFile::create(&path);
    let file = file.map_err(|source| CapturingError::Write { path, packets: 0, source })?;
    line!("  capture   {} to {}; stop with Ctrl-C", socket.display(), args.write.display());
    let mut coming = Coming { stream, file, rest: Vec::new(), packets: 0, is_ending: false };
    let ended = coming.take_until(args, &socket, interrupt);
    let packets = coming.packets;
    let path = args.write.clone();
    match ended {
        Ok(()) if coming.is_ending => {}
        Ok(()) => return Err(CapturingError::HostEnded { path, packets }),
        Err(error) => return Err(error),
    }
    line!("  captured  {packets} packets");
    Ok(())
}

fn socket(args: &CaptureArgs) -> Result<PathBuf, CapturingError> {
    let CaptureArgs { host, directory, .. } = args;
    match host {
        Some(host) if host.parse::<u32>().is_ok() => Ok(directory.join(format!("{host}.sock"))),
        Some(host) => Ok(host.into()),
        None => {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let is_socket = |path: &PathBuf| path.extension().is_some_and(|it| it == "sock");
            let is_there = |path: &PathBuf| match UnixStream::connect(path) {
                Ok(_) => true,
                Err(error) => error.kind() != ErrorKind::ConnectionRefused,
            };
            let all: Vec<_> = entries.map(|it| it.path()).filter(is_socket).collect();
            let mut there: Vec<_> = all.into_iter().filter(is_there).collect();
            match (there.len(), there.pop()) {
                (1, Some(only)) => Ok(only),
                (count, _) => Err(CapturingError::Which { directory: directory.clone(), count }),
            }
        }
    }
}

/// Asks the host for a capture. Returns the stream, of which the answer has been read.
fn ask(socket: &Path, snap: u32) -> Result<UnixStream, CapturingError> {
    let path = socket.to_owned();
    let mut stream = UnixStream::connect(socket).map_err(|source| match source.kind() {
        ErrorKind::NotFound => CapturingError::NoHost { path: path.clone() },
        ErrorKind::ConnectionRefused => CapturingError::Gone { path: path.clone() },
        ErrorKind::PermissionDenied => CapturingError::Forbidden { path: path.clone() },
        _ => CapturingError::System { path: path.clone(), source },
    })?;
    let mut talk = || {
        stream.set_read_timeout(Some(END_WITHIN))?;
        writeln!(stream, "capture 1 {snap}")?;
        let mut answer = Vec::new();
        let mut octet = [0];
        while answer.len() < 1024 && stream.read(&mut octet)? > 0 && octet != *b"\n" {
            answer.push(octet[0]);
        }
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(answer)
    };
    let answer = talk().map_err(|source| CapturingError::System { path, source })?;
    match &*answer {
        b"ok" => Ok(stream),
        other => {
            let text = String::from_utf8_lossy(other);
            let reason =
                text.strip_prefix("no: ").unwrap_or("it gave no reason; it may have ended");
            Err(CapturingError::Refused { reason: reason.to_owned() })
        }
    }
}

/// A capture that comes by a stream, and the file that it goes to.
struct Coming {
    stream: UnixStream,
    file: WholeFile,
    /// Octets that are no whole block yet.
    rest: Vec<u8>,
    packets: u64,
    /// Whether the host was told to end the capture.
    is_ending: bool,
}

impl Coming {
    /// Takes what comes until its end.
    fn take_until(
        &mut self,
        args: &CaptureArgs,
        socket: &Path,
        interrupt: &Interrupt,
    ) -> Result<(), CapturingError> {
        let until = args.duration.map(|seconds| now().boot + Duration::from_secs(seconds));
        let mut patience = None;
        let mut octets = vec![0; 256 << 10];
        loop {
            let is_enough = args.count.is_some_and(|count| self.packets >= count)
                || until.is_some_and(|until| now().boot >= until)
                || interrupt.is_set();
            if is_enough && !self.is_ending {
                self.is_ending = true;
                patience = Some(now().boot + END_WITHIN);
                // An error means that it has ended.
                let _ = self.stream.shutdown(Shutdown::Write);
            }
            let count = match self.stream.read(&mut octets) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if patience.is_some_and(|patience| now().boot >= patience) {
                        return Ok(());
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
                Err(source) => {
                    return Err(CapturingError::System { path: socket.into(), source });
                }
            };
            self.rest.extend_from_slice(&octets[..count]);
            self.write(args.count).map_err(|source| CapturingError::Write {
                path: args.write.clone(),
                packets: self.packets,
                source,
            })?;
        }
    }

    /// Writes the whole blocks that have come, but for packets beyond `most`.
    fn write(&mut self, most: Option<u64>) -> io::Result<()> {
        let whole = whole_blocks(&self.rest);
        let room = most.map_or(u64::MAX, |most| most - self.packets);
        let mut kept = Vec::new();
        let blocks = &self.rest[..whole];
        let packets = packets_in(blocks);
        let blocks = if packets > room {
            kept = without_packets_beyond(blocks, room);
            &kept
        } else {
            blocks
        };
        self.file.write_all(blocks)?;
        drop(kept);
        self.packets += packets.min(room);
        self.rest.drain(..whole);
        Ok(())
    }
}

fn without_packets_beyond(mut blocks: &[u8], mut room: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    while let Some(len) = blocks.get(4..8) {
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let (block, rest) = blocks.split_at(len);
        let is_packet = packets_in(block) == 1;
        if !is_packet || room > 0 {
            kept.extend_from_slice(block);
            room -= u64::from(is_packet);
        }
        blocks = rest;
    }
    kept
}

/// The captures of hosts of this program, which end with it.
static OWN: Mutex<Vec<(PathBuf, Capture)>> = Mutex::new(Vec::new());

/// Captures a host of this program to a file, until [`end_own`].
pub(crate) fn begin_own(
    host: &HostOf<impl EngineKind>,
    path: &Path,
    snap: u32,
) -> Result<(), CapturingError> {
    let file = WholeFile::create(path).map_err(|source| {
        let path = path.to_owned();
        CapturingError::Write { path, packets: 0, source }
    })?;
    let config = CaptureConfig::default().with(|it| it.snap = snap as usize);
    let capture = host.capture_source().start(file, config)?;
    OWN.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_owned(), capture));
    Ok(())
}

/// Ends what [`begin_own`] has begun, and says on standard error what was captured.
pub(crate) fn end_own(program: &str) {
    let all = core::mem::take(&mut *OWN.lock().unwrap_or_else(PoisonError::into_inner));
    for (path, capture) in all {
        match capture.finish() {
            Ok(totals) => eprintln!("{program}: {}: {totals}", path.display()),
            Err(error) => eprintln!("{program}: {}: {error}", path.display()),
        }
    }
}
