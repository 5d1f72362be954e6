//! What happened in a simulation, as data: the invariants read it, a person can print it, and its digest
//! tells whether two runs were the same.

use core::fmt;
use std::sync::Arc;

use rma_core::{
    backend::Transmit,
    command::{Command, Completion},
    error::{CommandError, DropReason},
    time::Instant,
    wire::{Failure, FrameView},
};

use crate::node::NodeId;

/// One thing that happened at one node.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// Where.
    pub node: NodeId,
    /// What.
    pub what: What,
}

/// What can happen at a node.
#[derive(Clone, Debug)]
pub enum What {
    /// Software issued a command.
    Issued {
        /// The command.
        command: Command,
        /// Whether the NIC took it.
        result: Result<(), CommandError>,
    },
    /// The NIC sent a frame.
    Sent {
        /// From where to where.
        transmit: Transmit,
        /// The frame as it was sealed.
        frame: Arc<[u8]>,
        /// Whether the frame itself will arrive, corrupted or not.
        arrives: bool,
        /// How many more copies the link made.
        extra_copies: u8,
    },
    /// A copy of a frame arrived.
    Received {
        /// From where to where it was sent.
        transmit: Transmit,
        /// The frame as it was sealed; not what arrived if `corrupted`.
        frame: Arc<[u8]>,
        /// Whether bits of this copy are wrong.
        corrupted: bool,
        /// Whether the link made this copy.
        extra: bool,
        /// What the NIC made of it.
        result: Result<(), DropReason>,
    },
    /// An op completed.
    Completed(Completion),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} ns {} ", self.at.as_nanos(), self.node)?;
        match &self.what {
            What::Issued { command, result } => write!(
                f,
                "issued   slot {} {:?} {} bytes at {} of {} {}{}",
                command.slot,
                command.class,
                command.op_size,
                command.remote_offset,
                command.responder,
                command.remote_region,
                Verdict(result)
            ),
            What::Sent { transmit, frame, arrives, extra_copies } => {
                let fate = match (arrives, extra_copies) {
                    (true, 0) => "",
                    (true, _) => " (copied)",
                    (false, 0) => " (lost)",
                    (false, _) => " (late)",
                };
                write!(f, "sent     {} to {}{fate}", Summary(frame), transmit.destination)
            }
            What::Received { transmit, frame, corrupted, extra, result } => {
                let extra = if *extra { " (a copy)" } else { "" };
                let corrupted = if *corrupted { " (corrupted)" } else { "" };
                write!(f, "received {} from {}", Summary(frame), transmit.source)?;
                write!(f, "{extra}{corrupted}{}", Verdict(result))
            }
            What::Completed(done) => write!(
                f,
                "complete slot {} {} after {} + {} ns",
                done.slot,
                done.status,
                done.issue_delay().as_nanos(),
                done.remote_delay().as_nanos()
            ),
        }
    }
}

struct Verdict<'a, E>(&'a Result<(), E>);

impl<E: fmt::Debug> fmt::Display for Verdict<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(()) => Ok(()),
            Err(error) => write!(f, ": {error:?}"),
        }
    }
}

struct Summary<'a>(&'a [u8]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match FrameView::parse(self.0) {
            Ok(FrameView::ReadRequest(view)) => {
                let header = view.claims().header;
                write!(f, "request  slot {} use {}", header.slot, header.generation)
            }
            Ok(FrameView::ReadResponse(view)) => {
                let header = view.claims().header;
                let (start, end) = view.claims().span();
                write!(f, "response slot {} use {} {start}..{end}", header.slot, header.generation)
            }
            Ok(FrameView::Failure(view)) => {
                let Failure { header, status } = view.claims();
                write!(f, "failure  slot {} use {} {status}", header.slot, header.generation)
            }
            Err(reason) => write!(f, "no frame: {reason:?}"),
        }
    }
}

/// A number that two runs share only if they were the same, event for event and byte for byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0x6a09_e667_f3bc_c908)
    }
}

impl Digest {
    /// Takes one more event in.
    pub fn take(&mut self, seen: &Seen) {
        self.word(seen.at.as_nanos());
        self.word(seen.node.0.into());
        match &seen.what {
            What::Issued { command, result } => {
                self.word(1);
                command.to_line().0.into_iter().for_each(|word| self.word(word));
                self.word(result.is_ok().into());
            }
            What::Sent { transmit, frame, arrives, extra_copies } => {
                self.word(2);
                self.transmit(transmit);
                self.bytes(frame);
                self.word(u64::from(*arrives) | u64::from(*extra_copies) << 1);
            }
            What::Received { transmit, frame, corrupted, extra, result } => {
                self.word(3);
                self.transmit(transmit);
                // The tag stands for the frame.
                self.bytes(&frame[frame.len().saturating_sub(16)..]);
                self.word(u64::from(*corrupted) | u64::from(*extra) << 1);
                self.word(result.map_or_else(|reason| reason as u64 + 1, |()| 0));
            }
            What::Completed(completion) => {
                self.word(4);
                completion.to_line().0.into_iter().for_each(|word| self.word(word));
            }
        }
    }

    /// Takes another digest in.
    pub const fn fold(&mut self, other: Self) {
        self.word(other.0);
    }

    fn transmit(&mut self, transmit: &Transmit) {
        self.bytes(&transmit.source.to_octets());
        self.bytes(&transmit.destination.to_octets());
        self.word(transmit.flow.into());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    const fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}
