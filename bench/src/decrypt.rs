//! `rma-bench decrypt`: puts the plaintext of frames in place in a capture, by a key log.
//!
//! The module `blocks` writes the file, `datagram` finds the frames in a packet, `keys` reads the
//! log, and `one_rma` and `star` open frames. It takes one pass: a frame opens only if the frame
//! that it answers came before it, as it does in a capture in the order of time.

mod blocks;
mod datagram;
mod keys;
mod one_rma;
mod reader;
mod shut;
mod star;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use clap::Args;
use rma_core::port::Port;

use self::{
    blocks::{Out, may_call_plain},
    datagram::Datagram,
    reader::{Capture, Kind},
    shut::{FrameSeen, Tally},
};
pub use self::{keys::Keys, shut::Shut};
use crate::{interrupt::Interrupt, line};

/// Arguments of `decrypt`.
#[derive(Args, Clone, Debug)]
pub struct DecryptArgs {
    /// The capture: pcapng or pcap.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The key log, as `--keylog` and `RMA_KEYLOGFILE` make it.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// The pcapng file to write, for its owner only: it has what was encrypted.
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The UDP ports of the deployment.
    #[command(flatten)]
    ports: Ports,
}

/// The UDP ports of frames.
#[derive(Args, Clone, Copy, Debug)]
pub struct Ports {
    /// The UDP port of 1RMA.
    #[arg(long, value_name = "PORT", default_value_t = Self::DEFAULT.port)]
    port: u16,
    /// The UDP port of StaR's stateless processing.
    #[arg(long, value_name = "PORT", default_value_t = Self::DEFAULT.stateless_port)]
    stateless_port: u16,
    /// The UDP port of StaR's stateful processing.
    #[arg(long, value_name = "PORT", default_value_t = Self::DEFAULT.stateful_port)]
    stateful_port: u16,
}

impl Ports {
    const DEFAULT: Self = Self {
        port: Port::ONE_RMA.0,
        stateless_port: rma_star::config::STATELESS_PORT.0,
        stateful_port: rma_star::config::STATEFUL_PORT.0,
    };
}

/// The reason why a capture was not decrypted.
#[derive(Debug, thiserror::Error)]
pub enum DecryptError {
    /// A file that cannot be read.
    #[error("{} cannot be read: {source}; check its name and its permissions", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that cannot be written.
    #[error("{} cannot be written: {source}; give another file, or make room", path.display())]
    Write {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The output is one of the inputs.
    #[error("{} is what is read: give another file for the result", path.display())]
    Same {
        /// Its path.
        path: PathBuf,
    },
    /// No capture.
    #[error(
        "{} is neither pcapng nor pcap; give a capture of rma-bench, tcpdump or Wireshark",
        path.display()
    )]
    NoCapture {
        /// Its path.
        path: PathBuf,
    },
}

/// Decrypts a capture; `each` says of each frame that stays shut why.
///
/// # Errors
/// If a file cannot be read or written. Frames that stay shut are none.
pub fn run(args: &DecryptArgs, each: bool, interrupt: &Interrupt) -> Result<(), DecryptError> {
    let DecryptArgs { input, keys, output, ports } = args;
    let read = |path: &Path, source| DecryptError::Read { path: path.to_owned(), source };
    let write = |source| DecryptError::Write { path: output.clone(), source };
    let open = |path: &Path| File::open(path).map_err(|it| read(path, it));
    let (key_log, capture) = (open(keys)?, open(input)?);
    for (path, file) in [(keys, &key_log), (input, &capture)] {
        let of = file.metadata().map_err(|it| read(path, it))?;
        if output.metadata().is_ok_and(|it| (it.dev(), it.ino()) == (of.dev(), of.ino())) {
            return Err(DecryptError::Same { path: output.clone() });
        }
    }
    let found = Keys::read(io::BufReader::new(key_log)).map_err(|it| read(keys, it))?;
    for note in found.notes() {
        line!("{}: {note}", keys.display());
    }
    let none = || DecryptError::NoCapture { path: input.clone() };
    let mut capture = Capture::open(capture).ok_or_else(none)?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(output);
    let file = file.map_err(write)?;
    // One that was there before may be open to all.
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(write)?;
    let mut out = BufWriter::new(file);
    let mut decrypter = Decrypter::new(found, *ports);
    let tally = decrypter.run(&mut capture, &mut out, each, || interrupt.is_set());
    let tally = tally.map_err(write)?;
    line!("{tally}");
    if let Some(end) = capture.cut() {
        line!("  the capture {end}");
    }
    Ok(())
}

/// Decrypts a capture to `out`, at the default ports. Returns the octets of payloads that were
/// opened.
///
/// # Errors
/// If it is no capture, or cannot be written.
pub fn decrypt(capture: File, keys: Keys, out: &mut impl Write) -> io::Result<u64> {
    let none = || io::Error::new(io::ErrorKind::InvalidData, "no capture");
    let mut capture = Capture::open(capture).ok_or_else(none)?;
    let tally = Decrypter::new(keys, Ports::DEFAULT).run(&mut capture, out, false, || false)?;
    Ok(tally.octets)
}

/// The keys and requests by which the frames of a capture are opened.
#[derive(Debug)]
struct Decrypter {
    keys: Keys,
    one_rma: one_rma::Ops,
    star: star::Connections,
    ports: Ports,
    /// The packet in hand, and its frames.
    packet: Vec<u8>,
    frames: Vec<FrameSeen>,
}

impl Decrypter {
    fn new(keys: Keys, ports: Ports) -> Self {
        Self {
            keys,
            one_rma: one_rma::Ops::default(),
            star: star::Connections::default(),
            ports,
            packet: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Copies `capture` to `out`, with the plaintext of what can be opened in place.
    fn run(
        &mut self,
        capture: &mut Capture,
        out: &mut impl Write,
        each: bool,
        is_over: impl Fn() -> bool,
    ) -> io::Result<Tally> {
        let (mut out, mut tally) = (Out::new(out), Tally::default());
        while let Some(block) = capture.next() {
            let raw = capture.raw(&block);
            match &block.kind {
                Kind::Verbatim => out.verbatim(raw)?,
                Kind::PcapHeader { link, snap, nanos } => out.begin(*link, *snap, *nanos)?,
                Kind::Packet(packet) => {
                    self.packet.clear();
                    self.packet.extend_from_slice(&raw[packet.data.clone()]);
                    self.open(packet.link, packet.takes_comment, &mut tally);
                    if each {
                        tally.each(&self.frames);
                    }
                    let comments = shut::comments(&self.frames);
                    match &packet.stamp {
                        None if comments.is_empty() && !may_call_plain(raw) => {
                            out.verbatim(raw)?;
                        }
                        None => out.patched(raw, packet, &self.packet, &comments)?,
                        Some(stamp) => out.packet(stamp, packet, &self.packet, &comments)?,
                    }
                }
            }
            capture.consume(&block);
            if is_over() {
                break;
            }
        }
        out.flush()?;
        Ok(tally)
    }

    /// Opens the frames of the packet in hand.
    fn open(&mut self, link: u32, takes_comment: bool, tally: &mut Tally) {
        self.frames.clear();
        tally.packets += 1;
        let found = Datagram::of(link, &self.packet);
        let Some(datagram) = found else {
            tally.unknown_links += u64::from(!datagram::is_known(link));
            return;
        };
        let frames = &mut self.packet[datagram.payload.clone()];
        let Ports { port, stateless_port, stateful_port } = self.ports;
        if datagram.port == port {
            self.one_rma.open(&mut self.keys, &datagram, frames, &mut self.frames);
        } else if [stateless_port, stateful_port].contains(&datagram.port) {
            self.star.open(&self.keys, &datagram, frames, &mut self.frames);
        }
        if !takes_comment {
            // Plaintext that nothing says is plaintext would be shown as ciphertext.
            for frame in &mut self.frames {
                frame.shut = frame.shut.or(Some(Shut::NoComment));
            }
        }
        tally.count(&self.frames);
    }
}

#[cfg(test)]
mod tests;
