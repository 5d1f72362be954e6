//! The trace of a simulation, as data: the invariants read it, a person can print it, and its
//! digest tells whether two runs were the same.

use core::{fmt, time::Duration};
use std::sync::Arc;

use rma_core::{
    command::{Command, CommandOp, Completion, Transfer},
    error::{CommandError, DropReason},
    op::OpStatus,
    packet::Tail,
    region::RegionId,
    time::Instant,
    wire::{
        Acknowledgement, Failure, FrameView, Header, MutationRequest, RecordedRequest,
        SettleRequest, Settlement, Solicitation,
    },
};

use crate::net::frame::{Berth, Frame, NodeId, Packet};

/// One thing that happened at one node.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When, in true time.
    pub at: Instant,
    /// The time by the node's clock.
    pub local: Instant,
    /// The node that it happened at.
    pub node: NodeId,
    /// The event.
    pub what: What,
}

/// An event at a node.
#[derive(Clone, Debug)]
pub enum What {
    /// Software issued a command.
    Issued {
        /// The command.
        command: Command,
        /// Whether the NIC took it.
        result: Result<(), CommandError>,
    },
    /// The device sent a packet. What is told of its frames follows, in the order in which the NIC
    /// wrote those of all packets.
    Left {
        /// The packet.
        packet: Arc<Packet>,
        /// Whether the packet itself reaches the end of its link, corrupted or not.
        arrives: bool,
        /// How many more copies the link made.
        extra_copies: u8,
    },
    /// The NIC sent a frame.
    Sent {
        /// The frame.
        frame: Arc<Frame>,
        /// Whether its packet itself reaches the end of its link, corrupted or not.
        arrives: bool,
        /// How many more copies the link made.
        extra_copies: u8,
    },
    /// The NIC wrote a frame that may not begin a packet, and it had none to join.
    Unpaid {
        /// The frame.
        frame: Arc<Frame>,
    },
    /// A copy of a packet came, and is taken apart. What is found in it follows.
    Came {
        /// The packet as it was sent.
        packet: Arc<Packet>,
        /// The octets that arrived, if they are not those that were sent.
        altered: Option<Arc<[u8]>>,
        /// Whether the link made this copy.
        extra: bool,
    },
    /// No more frames could be found in a packet.
    Tail {
        /// The packet as it was sent.
        packet: Arc<Packet>,
        /// The rest of it.
        tail: Tail,
    },
    /// The NIC received a copy of a frame. What only damage to its packet made is shown as a copy
    /// of the packet's last frame that was altered.
    Received {
        /// The frame as it was sent.
        frame: Arc<Frame>,
        /// The octets that arrived, if they are not those that were sent.
        altered: Option<Arc<[u8]>>,
        /// Whether the link made this copy.
        extra: bool,
        /// For how long the node was stopped in the midst of it, or of a frame before it in the
        /// same burst.
        stalled: Duration,
        /// The result by the NIC.
        result: Result<(), DropReason>,
        /// Whether the NIC counted a late effect.
        counted_late: bool,
        /// Whether the NIC refused another request, which it had accepted, to make room for this
        /// one.
        pushed_out: bool,
        /// The copy of a packet that it came in, here or at another engine of the host.
        landing: Landing,
    },
    /// A copy of a frame that came here was put into the ring of the engine that it is for.
    Handed {
        /// The frame as it was sent.
        frame: Arc<Frame>,
    },
    /// The engine has taken a new key of a region from another engine of its host.
    KeyTaken {
        /// The region.
        region: RegionId,
    },
    /// A copy of a frame whose packet had reached the end of its link was lost there. The node is
    /// the receiver.
    Lost {
        /// The frame as it was sent.
        frame: Arc<Frame>,
        /// Whether the link made this copy.
        extra: bool,
        /// The place where the copy was lost.
        place: Place,
    },
    /// An op completed.
    Completed(Completion),
    /// The node's software was stopped.
    Paused,
    /// It runs again.
    Resumed,
    /// The node has lost all its state.
    Crashed,
    /// It runs again, with a new NIC.
    Restarted,
}

/// The copy of a packet that a frame came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// How many copies of packets had come before it, to all nodes.
    pub copy: u64,
    /// When an engine fetched it.
    pub at: Instant,
}

/// The place where frames are lost, besides on their links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The receiver's port of the switch had no room.
    Switch,
    /// The receiver was down, or was paused and its device had no room.
    Node,
    /// The receiver did not find it: its packet was damaged before it. Or it takes no
    /// solicitations.
    Unfound,
    /// The ring of the engine that it is for had no room.
    Ring,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} ns {} ", self.at.as_nanos(), self.node)?;
        match &self.what {
            What::Issued { command, result } => write!(
                f,
                "issued   slot {} {:?} {} of {} {}{}",
                command.slot,
                command.class,
                Wish(&command.op),
                command.responder,
                command.remote_region,
                Verdict(result)
            ),
            What::Left { packet, arrives, extra_copies } => {
                let (to, fate) = (packet.transmit.destination, fate(*arrives, *extra_copies));
                write!(f, "left     {} to {to}{fate}", Load(packet))
            }
            What::Sent { frame, arrives, extra_copies } => {
                let (to, fate) = (frame.transmit.destination, fate(*arrives, *extra_copies));
                write!(f, "sent     {} to {to}{fate}", Summary(frame))
            }
            What::Unpaid { frame } => {
                write!(f, "unpaid   {} to {}", Summary(frame), frame.transmit.destination)
            }
            What::Came { packet, altered, extra } => {
                let extra = if *extra { " (a copy)" } else { "" };
                let damaged = if altered.is_some() { " (damaged)" } else { "" };
                let source = packet.transmit.source;
                write!(f, "came     {} from {source}{extra}{damaged}", Load(packet))
            }
            What::Tail { packet, tail } => {
                let Tail { reason, octets, .. } = tail;
                write!(f, "tail     packet {}, {octets} octets: {reason:?}", packet.number)
            }
            What::Received {
                frame,
                altered,
                extra,
                stalled,
                result,
                counted_late,
                pushed_out,
                landing: _,
            } => {
                let extra = if *extra { " (a copy)" } else { "" };
                let corrupted = if altered.is_some() { " (corrupted)" } else { "" };
                write!(f, "received {} from {}", Summary(frame), frame.transmit.source)?;
                write!(f, "{extra}{corrupted}{}", Verdict(result))?;
                if !stalled.is_zero() {
                    write!(f, ", stopped for {} ns meanwhile", stalled.as_nanos())?;
                }
                if *pushed_out {
                    write!(f, ", in place of another")?;
                }
                if *counted_late { write!(f, ", counted as late") } else { Ok(()) }
            }
            What::Lost { frame, extra, place } => {
                let extra = if *extra { " (a copy)" } else { "" };
                let source = frame.transmit.source;
                write!(f, "lost     {} from {source}{extra}: {place:?}", Summary(frame))
            }
            What::Handed { frame } => write!(f, "handed   {}", Summary(frame)),
            What::KeyTaken { region } => write!(f, "new key  of {region}"),
            What::Completed(done) => write!(
                f,
                "complete slot {} {} after {} + {} ns",
                done.slot,
                done.status,
                done.issue_delay().as_nanos(),
                done.remote_delay().as_nanos()
            ),
            What::Paused => write!(f, "paused"),
            What::Resumed => write!(f, "resumed"),
            What::Crashed => write!(f, "crashed"),
            What::Restarted => {
                write!(f, "restarted, its clock shows {} ns", self.local.as_nanos())
            }
        }
    }
}

/// Returns the fate of a packet on its link.
const fn fate(arrives: bool, extra_copies: u8) -> &'static str {
    match (arrives, extra_copies) {
        (true, 0) => "",
        (true, _) => " (copied)",
        (false, 0) => " (lost)",
        (false, _) => " (late)",
    }
}

struct Load<'a>(&'a Packet);

impl fmt::Display for Load<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { number, frames, bytes, .. } = self.0;
        let frames = frames.len();
        write!(f, "packet {number} of {frames} frames, {} octets", bytes.len())
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

struct Wish<'a>(&'a CommandOp);

impl fmt::Display for Wish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CommandOp::Read(Transfer { op_size, remote_offset, .. }) => {
                write!(f, "read {op_size} bytes at {remote_offset}")
            }
            CommandOp::Write(Transfer { op_size, remote_offset, .. }) => {
                write!(f, "write {op_size} bytes at {remote_offset}")
            }
            CommandOp::Rekey(_) => write!(f, "rekey"),
            CommandOp::Recorded { op, .. } => write!(f, "{op:?}"),
            CommandOp::Settle { op_type, name } => {
                write!(f, "settle {op_type} {} as {}", name.counter, name.number)
            }
        }
    }
}

struct Use(Header);

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} use {}", self.0.slot, self.0.generation)
    }
}

struct Summary<'a>(&'a Frame);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.berth {
            Some(Berth { packet, index, of }) => {
                write!(f, "packet {packet} [{}/{of}] ", index + 1)?;
            }
            None => write!(f, "no packet ")?,
        }
        match FrameView::parse(&self.0.bytes) {
            Ok(FrameView::ReadRequest(view)) => write!(f, "request  {}", Use(view.claims().header)),
            Ok(FrameView::MutationRequest(view)) => {
                let MutationRequest { header, mutation, .. } = view.claims();
                write!(f, "{:?} {}", mutation.op_type(), Use(header))
            }
            Ok(FrameView::ReadResponse(view)) => {
                let (start, end) = view.claims().span();
                write!(f, "response {} {start}..{end}", Use(view.claims().header))
            }
            Ok(FrameView::Solicitation(view)) => {
                let Solicitation { header, pending, .. } = view.claims();
                write!(f, "solicit  {} as {pending}", Use(header))
            }
            Ok(FrameView::SolicitedData(view)) => {
                let (start, end) = view.claims().span();
                write!(f, "data     {} {start}..{end}", Use(view.claims().header))
            }
            Ok(FrameView::Acknowledgement(view)) => {
                let Acknowledgement { header, status } = view.claims();
                write!(f, "ack      {} {status}", Use(header))
            }
            Ok(FrameView::Failure(view)) => {
                let Failure { header, status } = view.claims();
                write!(f, "failure  {} {status}", Use(header))
            }
            Ok(FrameView::RecordedRequest(view)) => {
                let RecordedRequest { header, mutation, .. } = view.claims();
                write!(f, "{mutation:?} {}", Use(header))
            }
            Ok(FrameView::AcknowledgementWithResult(view)) => {
                write!(f, "result   {}", Use(view.claims().header))
            }
            Ok(FrameView::SettleRequest(view)) => {
                let SettleRequest { header, name, .. } = view.claims();
                write!(f, "settle   {} {} as {}", Use(header), name.counter, name.number)
            }
            Ok(FrameView::Settlement(view)) => {
                let Settlement { header, verdict } = view.claims();
                write!(f, "settled  {} {verdict}", Use(header))
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
        self.word(seen.local.as_nanos());
        self.word(seen.node.0.into());
        match &seen.what {
            What::Issued { command, result } => {
                self.word(1);
                command.to_line().0.into_iter().for_each(|word| self.word(word));
                self.word(result.is_ok().into());
            }
            What::Sent { frame, arrives, extra_copies } => {
                self.word(2);
                self.bytes(&frame.transmit.source.to_octets());
                self.bytes(&frame.transmit.destination.to_octets());
                self.word(frame.transmit.source_port.0.into());
                self.bytes(&frame.bytes);
                self.word(u64::from(*arrives) | u64::from(*extra_copies) << 1);
            }
            What::Left { packet, .. } => {
                self.word(10);
                self.word(packet.number << 8 | packet.frames.len() as u64);
            }
            What::Unpaid { frame } => {
                self.word(11);
                self.bytes(&frame.bytes);
            }
            What::Came { packet, altered, extra } => {
                self.word(12);
                self.word(packet.number << 1 | u64::from(*extra));
                self.bytes(altered.as_deref().unwrap_or(&[]));
            }
            What::Tail { packet, tail } => {
                self.word(13);
                self.word(packet.number << 8 | word_of(tail.reason));
                self.word(tail.octets as u64);
            }
            What::Received {
                frame,
                altered,
                extra,
                stalled,
                result,
                counted_late,
                pushed_out,
                landing: _,
            } => {
                self.word(3);
                let flags = u64::from(*counted_late) | u64::from(*pushed_out) << 1;
                self.word((stalled.as_nanos() as u64) << 2 | flags);
                self.copy(frame, *extra);
                self.bytes(altered.as_deref().unwrap_or(&[]));
                self.word(result.map_or_else(word_of, |()| 0));
            }
            What::Handed { frame } => {
                self.word(14);
                self.word(frame.number);
            }
            What::KeyTaken { region } => {
                self.word(15);
                self.word(region.to_bits().into());
            }
            What::Completed(completion) => {
                self.word(4);
                completion.to_line().0.into_iter().for_each(|word| self.word(word));
            }
            What::Lost { frame, extra, place } => {
                self.word(5);
                self.copy(frame, *extra);
                self.word(*place as u64);
            }
            What::Paused => self.word(6),
            What::Resumed => self.word(7),
            What::Crashed => self.word(8),
            What::Restarted => self.word(9),
        }
    }

    /// Takes another digest in.
    pub const fn fold(&mut self, other: Self) {
        self.word(other.0);
    }

    /// Takes in a copy: its octets were taken in when it was sent.
    const fn copy(&mut self, frame: &Frame, extra: bool) {
        self.word(frame.number << 1 | extra as u64);
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

/// Returns the digest's word for the reason of a drop: all that is refused with a NACK is one,
/// however many counters tell why.
fn word_of(reason: DropReason) -> u64 {
    let is_nacked = reason.refused_with() == Some(OpStatus::Nack);
    let reason = if is_nacked { DropReason::InboundQueueFull } else { reason };
    reason as u64 + 1
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
