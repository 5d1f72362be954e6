//! Every kind of channel, with ends that keep to their protocol and a script that need not: it
//! carries out their ops in any order, fails them, loses their answers, and writes whatever it
//! likes into rings, slots, bells, tails and the rings of events.
//!
//! Nothing that it writes may make an end panic or read outside what it reads. And of each end:
//!
//! - What a receiver claims has a length that a message can have, lies in memory, all of it, and
//!   has a position that was not claimed before. Positions grow, but in a shared ring whose events
//!   tell of messages, or that has recovered. In a ring of one sender it lies behind all that was
//!   claimed before, and with all that is held within one length of the ring.
//! - Once a receiver, or a sender, was told what cannot be, it says so ever after.
//! - What a sender knows of a message never goes back.
//! - As long as nobody has written what is not theirs to write, each message that is claimed is
//!   one that was sent, whole, once and in order, and stays what it is until it is given back.
//!
//! How each kind is opened is what the contract of channels knows (`rma_contract`): here it gets a
//! [`World`] in which nobody is believed.

use core::time::Duration;
use std::collections::BTreeSet;

use rma_channel::{Kind, ReceiveError, SendError, SendHandle, SendState, Sender};
use rma_core::op::OpStatus;
use rma_sim::net::frame::NodeId;

use crate::script::Script;
use rma_contract::{
    end::{End, Taken},
    hosts::Hosts as _,
    kinds::{Ends, ROWS, Row},
};
use world::World;

mod terms;
mod world;

/// The events of a script.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Messages that receivers have claimed.
    pub claimed: u64,
    /// Receivers that were told what cannot be.
    pub malformed: u64,
    /// Senders that were told what cannot be.
    pub malformed_tails: u64,
}

/// Messages of one sender at most: a script is short.
const MESSAGES_MAX: usize = 200;

/// A sender, and what became of its messages.
struct From {
    node: NodeId,
    end: Box<dyn Sender>,
    sent: Vec<(SendHandle, SendState, Vec<u8>)>,
    broken: Option<SendError>,
}

/// A receiver, and what it holds.
struct To {
    node: NodeId,
    end: Box<dyn End>,
    held: Vec<(Taken, Vec<u8>)>,
    ended: Option<ReceiveError>,
    /// The position at which the last claimed message ends, if its position says so; or begins.
    last: Option<u64>,
    /// The positions of claimed messages.
    claimed: BTreeSet<u64>,
    /// Whether it has taken back what a sender had reserved: the message is then sent again, and
    /// may lie behind what was sent after it.
    recovered: bool,
    /// By sender: how many of its messages were claimed or passed by.
    next: Vec<usize>,
}

struct Run {
    row: &'static Row,
    world: World,
    froms: Vec<From>,
    tos: Vec<To>,
    len_max: u32,
    /// Whether nobody has written what is not theirs to write.
    honest: bool,
    /// Whether an op has failed.
    failed: bool,
    seen: Seen,
}

/// Runs a script.
pub(super) fn run(script: &mut Script<'_>) -> Seen {
    let (code, shape) = (script.number() as u8 & 0x1f, script.number());
    let rows: Vec<_> = ROWS.iter().filter(|row| row.kind as u8 == code).collect();
    let Some(which) = (shape >> 5).checked_rem(rows.len()) else {
        terms::run(script);
        return Seen::default();
    };
    let mut run = Run::new(rows[which], shape);
    while let Some(step) = script.byte() {
        run.step(step, script);
    }
    run.seen
}

impl Run {
    fn new(row: &'static Row, shape: usize) -> Self {
        let len_max = [8, 24, 100, 300][shape % 4].min(row.longest);
        let (room, many) = ([1, 2, 3, 8][shape >> 2 & 3], shape & 0x10 != 0);
        let (settings, nodes) = row.settings(len_max, room, many);
        let mut world = World::new(nodes);
        let Ends { senders, receivers } = (row.open)(&mut world, row.kind, &settings);
        let count = senders.len();
        let from = |(node, end)| From { node, end, sent: Vec::new(), broken: None };
        let to = |(node, end)| {
            let (held, claimed, next) = (Vec::new(), BTreeSet::new(), vec![0; count]);
            To { node, end, held, ended: None, last: None, claimed, recovered: false, next }
        };
        let (froms, tos) = (senders.into_iter().map(from), receivers.into_iter().map(to));
        let (froms, tos) = (froms.collect(), tos.collect());
        let (honest, failed, seen) = (true, false, Seen::default());
        Self { row, world, froms, tos, len_max, honest, failed, seen }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        self.world.pass(Duration::from_micros(3));
        let (node, which) = (usize::from(step >> 4), usize::from(step >> 6));
        let node = node % self.world.nodes();
        match step & 0xf {
            0 | 1 => self.send(which, script),
            2 | 3 => self.claim(which),
            4 => self.give_back(which, script.number()),
            5 => self.look(),
            6 => self.serve(),
            7 => {
                self.world.poll(node);
                self.world.apply(node, script.number());
            }
            8 => {
                self.world.poll(node);
                let status = OpStatus::ALL[script.number() % OpStatus::ALL.len()];
                if status != OpStatus::Ok {
                    self.failed = true;
                    self.world.fail(node, script.number(), status);
                }
            }
            9 => {
                self.failed = true;
                self.world.poll(node);
                let which = script.number();
                self.world.lose(node, which, which & 0x80 != 0);
            }
            10 => self.world.pass(Duration::from_micros(1 << (script.number() % 16))),
            11 => self.recover(which),
            12..=14 => {
                self.honest = false;
                self.world.poke(script);
            }
            _ => {
                self.honest = false;
                self.world.astray(script);
            }
        }
    }

    /// A sender sends a message that is like no other of its length.
    fn send(&mut self, which: usize, script: &mut Script<'_>) {
        let which = which % self.froms.len();
        let From { node, end, sent, .. } = &mut self.froms[which];
        let span = (self.len_max - self.row.shortest + 1) as usize;
        let len = self.row.shortest as usize + script.number() * 3 % span;
        let number = sent.len();
        let byte = |at: usize| (number * 37 + which * 101 + at * 7 + len) as u8;
        let message: Vec<_> = (0..len).map(byte).collect();
        if number == MESSAGES_MAX {
            return;
        }
        let (link, now) = self.world.link(*node);
        if let Ok(handle) = end.send(link, now, &message) {
            sent.push((handle, SendState::Sending, message));
        }
    }

    /// A receiver claims what has come.
    fn claim(&mut self, which: usize) {
        let which = which % self.tos.len();
        let kind = self.row.kind;
        let to = &mut self.tos[which];
        let claim = match (to.end.take(), to.ended) {
            (Ok(claim), None) => claim,
            (Err(error), before) => {
                assert!(before.is_none_or(|it| it == error), "{kind}: {before:?}, then {error:?}");
                let is_news = before.is_none() && matches!(error, ReceiveError::Malformed(_));
                self.seen.malformed += u64::from(is_news);
                to.ended = Some(error);
                return;
            }
            (Ok(claim), Some(error)) => panic!("{kind}: {error:?}, then {claim:?}"),
        };
        let Some(claim) = claim else { return };
        self.seen.claimed += 1;
        let len = claim.len();
        assert!((1..=self.len_max as usize).contains(&len), "{kind}: {len} bytes");
        let bytes = bytes_of(to, &claim);
        let at = position(&claim);
        let is_next = to.last.is_none_or(|last| at >= last)
            || kind == Kind::SharedRingImmediate
            || to.recovered;
        assert!(is_next && to.claimed.insert(at), "{kind}: {at} after {:?}", to.last);
        let is_place = is_ring(kind);
        to.last = Some(at + if is_place { len as u64 } else { 1 });
        if is_place && let Some((first, _)) = to.held.first() {
            let span = at + len as u64 - position(first);
            assert!(span <= self.world.longest(), "{kind}: {span} bytes are held");
        }
        if self.honest {
            // Without authentication it is one of them.
            let may_be =
                |from: &From| claim.sender().is_none_or(|it| it == self.world.peer(from.node));
            let froms = self.froms.iter().zip(&mut to.next).filter(|(from, _)| may_be(from));
            let found = froms.filter_map(|(from, next)| {
                let skipped = from.sent[*next..].iter().position(|(.., it)| *it == bytes)?;
                Some((skipped, next))
            });
            let found = found.min_by_key(|(skipped, _)| *skipped);
            let (skipped, next) = found.unwrap_or_else(|| panic!("{kind}: nobody has sent it"));
            assert!(self.failed || skipped == 0, "{kind}: {skipped} before it are missing");
            *next += skipped + 1;
        }
        self.tos[which].held.push((claim, bytes));
    }

    fn give_back(&mut self, which: usize, index: usize) {
        let count = self.tos.len();
        let to = &mut self.tos[which % count];
        let Some(index) = index.checked_rem(to.held.len()) else { return };
        let (claim, before) = to.held.remove(index);
        let bytes = bytes_of(to, &claim);
        assert!(!self.honest || bytes == before, "{}: what is held has changed", self.row.kind);
        to.end.free(claim);
    }

    /// All ends look.
    fn look(&mut self) {
        let kind = self.row.kind;
        for node in 0..self.world.nodes() {
            self.world.poll(node);
        }
        for From { node, end, sent, broken } in &mut self.froms {
            let (link, now) = self.world.link(*node);
            let polled = end.poll(link, now);
            let is_malformed = |error| matches!(error, Some(SendError::Malformed(_)));
            let (before, after) = (*broken, polled.err());
            let stays = !is_malformed(before) || is_malformed(after);
            assert!(stays, "{kind}: {before:?}, then {after:?}");
            self.seen.malformed_tails += u64::from(is_malformed(after) && !is_malformed(before));
            *broken = after;
            for (handle, state, _) in sent {
                let now = end.test(*handle);
                let is_later = *state == now || rank(now) > rank(*state);
                assert!(is_later, "{kind}: {handle} was {state:?} and is {now:?}");
                *state = now;
            }
        }
        for To { node, end, .. } in &mut self.tos {
            let (link, now) = self.world.link(*node);
            // An end reports its error when it claims.
            let _ = end.poll(link, now);
        }
    }

    /// All ends look, and all that is under way is carried out, oldest first.
    fn serve(&mut self) {
        self.look();
        for node in 0..self.world.nodes() {
            for _ in 0..self.world.poll(node) {
                self.world.apply(node, 0);
            }
            self.world.poll(node);
        }
    }

    fn recover(&mut self, which: usize) {
        let count = self.tos.len();
        let To { node, end, recovered, .. } = &mut self.tos[which % count];
        let now = self.world.now();
        // An end reports its error when it claims.
        *recovered |= end.recover(&*self.world.gate(*node), now) == Ok(true);
    }
}

/// How much is known of a message.
const fn rank(state: SendState) -> u8 {
    match state {
        SendState::Sending => 0,
        SendState::Accepted | SendState::Failed(_) => 1,
        SendState::Processed => 2,
    }
}

/// Whether positions are those of bytes in a ring.
fn is_ring(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::RingDetached
            | Kind::RingImmediate
            | Kind::RingWithZeroing
            | Kind::RingWithoutZeroing
            | Kind::ReadRingDetached
            | Kind::ReadRingInlined
            | Kind::ReadRingNotify
    )
}

/// Returns the position of a message in its channel.
fn position(taken: &Taken) -> u64 {
    let position = taken.position().expect("each is claimed: none is read to elsewhere");
    position.to_bits()
}

/// The bytes of a message, all of which are there: what is not read stays as it was.
fn bytes_of(to: &To, claim: &Taken) -> Vec<u8> {
    let [bytes, again] = [0, 0xff].map(|fill| {
        let mut bytes = vec![fill; claim.len() + 1];
        assert_eq!(to.end.read(claim, 0, &mut bytes), claim.len());
        assert_eq!(bytes.pop(), Some(fill), "beyond the message");
        bytes
    });
    assert_eq!(bytes, again, "not in memory, all of it");
    bytes
}
