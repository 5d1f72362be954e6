//! RDMA over connections: each host has one to each host that it reads from, whose reads complete
//! in order (1RMA §2, §7.2).
//!
//! A NIC has one pipeline and one cable. Whatever is to be sent waits in the queue of its
//! connection, and [`Service`] says which queue is next. Each packet, in or out, needs the state of
//! its connection; if the NIC does not hold it, the pipeline stops to fetch it (StaR §II-B).
//!
//! Better here than in hardware: setting up connections costs nothing, a lossless network
//! never pauses anybody, retries have no limit. What is not here: congestion control. So with ports
//! that drop, this collapses where the paper's RNICs need not: figures take a lossless network.

use std::collections::{BTreeMap, VecDeque};

use rma_core::time::Instant;

use super::{
    agenda::Agenda,
    connection::{Asked, Limits, Received, Request, Requester, Responder, Response},
    constants::{Constant, Constants},
    error::BaselineError,
    fabric::{Fabric, FabricOptions},
    outcome::Outcome,
    work::{Books, ToDo, Work},
};
use crate::{
    flows::traffic::Framing,
    prng::Prng,
    star::model::{
        cache::{CacheOptions, Replacement, StateCache},
        time::Picos,
    },
};

/// A network of NICs with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaOptions {
    /// The order in which a NIC serves the queues of its connections.
    pub service: Service,
    /// The fate of packets on their way.
    pub fabric: FabricOptions,
    /// Whether the state that has to leave a NIC is drawn, or the one that was used least recently.
    pub random_replacement: bool,
}

/// The order in which a NIC serves the queues of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A request and a response packet by turns, as NICs of this project do it; and of either, one
    /// of each connection that has one.
    PacketByPacket,
    /// All packets of a message, then those of the one that has waited longest.
    MessageByMessage,
}

impl RdmaOptions {
    /// A network that loses nothing.
    #[must_use]
    pub const fn lossless(service: Service) -> Self {
        Self { service, fabric: FabricOptions::LOSSLESS, random_replacement: true }
    }
}

/// How often the timer of a connection doubles that makes no progress, as adaptive timers of NICs
/// do.
const DOUBLED_MAX: u32 = 6;

pub(super) fn framing(constants: &Constants) -> Framing {
    Framing {
        payload: constants.count(Constant::PacketPayload),
        overhead: constants.count(Constant::PacketOverhead),
    }
}

/// One of the two queues of a connection, each at another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Requests,
    Responses,
}

impl Service {
    /// In which queue of turns one of `side` waits.
    const fn queue(self, side: Side) -> usize {
        match self {
            Self::PacketByPacket => side as usize,
            Self::MessageByMessage => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    connection: u32,
    side: Side,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Request(Request),
    Response(Response),
    Refusal,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    connection: u32,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next op of a host begins.
    Begins(u16),
    /// The cable of a host has taken a packet.
    Free(u16),
    AtSwitch(Packet),
    /// A device has all of a packet.
    Arrives(Packet),
    /// It has passed a pipeline that had stopped.
    Passes(Packet),
    Timer(u32),
}

#[derive(Debug, Default)]
struct Connection {
    from: u16,
    to: u16,
    requester: Requester,
    responder: Responder,
    /// Whether each queue has its turn to come, where connections take turns.
    in_turn: [bool; 2],
}

#[derive(Debug, Default)]
struct Nic {
    is_sending: bool,
    /// Refusals, before all else.
    refusals: VecDeque<Packet>,
    /// Turns to come; where connections take turns, of requests, and of responses.
    turns: [VecDeque<Turn>; 2],
    /// The one of the two that was served last.
    last: usize,
    /// `None` if there is room for all states.
    cache: Option<StateCache>,
    stopped_until: Instant,
    /// How many packets have come that have not passed.
    passing: u32,
}

impl Nic {
    fn next_turn(&mut self) -> Option<Turn> {
        let other = 1 - self.last;
        let from = if self.turns[other].is_empty() { self.last } else { other };
        self.last = from;
        self.turns[from].pop_front()
    }

    /// A packet of the connection with `peer` comes to the pipeline. Returns when it has passed.
    fn pass(&mut self, now: Instant, peer: u16) -> Instant {
        let stops = self.cache.as_mut().map_or(Picos::ZERO, |it| it.use_state(peer.into()));
        let nanos = core::time::Duration::from_nanos(stops.0 / Picos::nanos(1).0);
        self.stopped_until = self.stopped_until.max(now) + nanos;
        self.stopped_until
    }
}

#[derive(Debug)]
struct Network<'a> {
    constants: &'a Constants,
    service: Service,
    loses: bool,
    limits: Limits,
    framing: Framing,
    request_len: u32,
    agenda: Agenda<Event>,
    fabric: Fabric,
    books: Books,
    nics: Vec<Nic>,
    connections: Vec<Connection>,
    /// By who reads from whom.
    numbers: BTreeMap<(u16, u16), u32>,
    /// Misses of making the first states be there.
    first_misses: u64,
}

pub(super) fn run(
    options: &RdmaOptions,
    constants: &Constants,
    work: &Work,
    seed: u64,
) -> Result<Outcome, BaselineError> {
    let mut network = Network::new(options, constants, work, seed)?;
    network.begin();
    while let Some(event) = network.agenda.next() {
        network.handle(event);
    }
    Ok(network.close())
}

impl<'a> Network<'a> {
    fn new(
        options: &RdmaOptions,
        constants: &'a Constants,
        work: &Work,
        seed: u64,
    ) -> Result<Self, BaselineError> {
        let books = Books::new(work, seed)?;
        let request_len = constants.count(Constant::RequestLen);
        let fabric = Fabric::new(options.fabric, constants, &work.traffic, request_len, seed);
        let cache = |host| cache(options, constants, work.traffic.hosts, host, seed);
        let nic = |host| Nic { cache: cache(host), ..Nic::default() };
        let nics: Vec<Nic> = (0..work.traffic.hosts).map(nic).collect();
        let misses = nics.iter().filter_map(|nic| nic.cache.as_ref()).map(StateCache::misses);
        Ok(Self {
            constants,
            service: options.service,
            loses: options.fabric.loses(),
            limits: Limits {
                reads: constants.count(Constant::ReadsOutstanding) as usize,
                payload: constants.count(Constant::PacketPayload),
            },
            framing: work.traffic.framing,
            request_len,
            agenda: Agenda::default(),
            fabric,
            books,
            first_misses: misses.sum(),
            nics,
            connections: Vec::new(),
            numbers: BTreeMap::new(),
        })
    }

    fn begin(&mut self) {
        for host in 0..=self.books.last_host() {
            self.schedule(host);
        }
        if let Some(transfer) = self.books.next_transfer() {
            self.post(transfer);
        }
    }

    fn schedule(&mut self, host: u16) {
        if let Some(at) = self.books.next_at(host) {
            self.agenda.at(at, Event::Begins(host));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Begins(host) => {
                if let Some(todo) = self.books.begin(host) {
                    self.post(todo);
                }
                self.schedule(host);
            }
            Event::Free(host) => {
                self.nics[usize::from(host)].is_sending = false;
                self.send(host);
            }
            Event::AtSwitch(packet) => {
                let (to, len) = (self.receiver(packet), self.wire_len(packet));
                if let Some(at) = self.fabric.cross(self.agenda.now(), to, len) {
                    self.agenda.at(at, Event::Arrives(packet));
                }
            }
            Event::Arrives(packet) => self.arrives(packet),
            Event::Passes(packet) => {
                let receiver = self.receiver(packet);
                self.nics[usize::from(receiver)].passing -= 1;
                self.passes(packet);
            }
            Event::Timer(connection) => self.handle_timer(connection),
        }
    }

    fn post(&mut self, todo: ToDo) {
        let ToDo { op, from, destination: to, len } = todo;
        let connections = &mut self.connections;
        let number = *self.numbers.entry((from, to)).or_insert_with(|| {
            connections.push(Connection { from, to, ..Connection::default() });
            (connections.len() - 1) as u32
        });
        self.connections[number as usize].requester.post(op, len);
        self.begin_reads(number);
    }

    fn begin_reads(&mut self, number: u32) {
        let requester = &mut self.connections[number as usize].requester;
        let was_idle = requester.is_idle();
        let begun = requester.begin(self.limits);
        if was_idle && begun > 0 {
            self.progress(number);
        }
        self.enqueue(number, Side::Requests, begun);
    }

    /// A connection has made progress: its timer begins anew.
    fn progress(&mut self, number: u32) {
        self.connections[number as usize].requester.timeouts = 0;
        self.set_timer(number);
    }

    fn set_timer(&mut self, number: u32) {
        if !self.loses {
            return;
        }
        let requester = &mut self.connections[number as usize].requester;
        let doubled = requester.timeouts.min(DOUBLED_MAX);
        let deadline = self.agenda.now() + self.constants.timer() * (1 << doubled);
        requester.deadline = (!requester.is_idle()).then_some(deadline);
        if !requester.is_watched && !requester.is_idle() {
            requester.is_watched = true;
            self.agenda.at(deadline, Event::Timer(number));
        }
    }

    fn handle_timer(&mut self, number: u32) {
        let requester = &mut self.connections[number as usize].requester;
        requester.is_watched = false;
        match requester.deadline {
            Some(deadline) if deadline > self.agenda.now() => {
                requester.is_watched = true;
                self.agenda.at(deadline, Event::Timer(number));
            }
            Some(_) => {
                requester.timeouts += 1;
                let requests = requester.go_back();
                self.set_timer(number);
                self.enqueue(number, Side::Requests, requests);
            }
            None => {}
        }
    }

    /// So many messages of a connection wait to be sent.
    fn enqueue(&mut self, connection: u32, side: Side, messages: usize) {
        if messages == 0 {
            return;
        }
        let it = &mut self.connections[connection as usize];
        let host = match side {
            Side::Requests => it.from,
            Side::Responses => it.to,
        };
        let in_turn = &mut it.in_turn[side as usize];
        let turns = match self.service {
            Service::PacketByPacket => usize::from(!core::mem::replace(in_turn, true)),
            Service::MessageByMessage => messages,
        };
        let turn = Turn { connection, side };
        let queue = self.service.queue(side);
        let queue = &mut self.nics[usize::from(host)].turns[queue];
        queue.extend(core::iter::repeat_n(turn, turns));
        self.send(host);
    }

    /// Sends the next packet of a host, if its cable is free.
    fn send(&mut self, host: u16) {
        if self.nics[usize::from(host)].is_sending {
            return;
        }
        let Some(packet) = self.next_packet(host) else { return };
        let peer = self.receiver(packet);
        let nic = &mut self.nics[usize::from(host)];
        nic.is_sending = true;
        let left = nic.pass(self.agenda.now(), peer) + self.fabric.sending(self.wire_len(packet));
        let at_switch = self.fabric.at_switch(left);
        self.agenda.at(left, Event::Free(host));
        self.agenda.at(at_switch, Event::AtSwitch(packet));
    }

    fn next_packet(&mut self, host: u16) -> Option<Packet> {
        if let Some(refusal) = self.nics[usize::from(host)].refusals.pop_front() {
            return Some(refusal);
        }
        loop {
            let turn = self.nics[usize::from(host)].next_turn()?;
            // After going back there may be more turns than messages.
            if let Some(packet) = self.take(turn) {
                return Some(packet);
            }
        }
    }

    /// The packet of a turn. The queue goes on when it is its turn again.
    fn take(&mut self, turn: Turn) -> Option<Packet> {
        let Turn { connection: number, side } = turn;
        let connection = &mut self.connections[number as usize];
        let (content, is_last, again) = match side {
            Side::Requests => match connection.requester.take() {
                Some(sent) => (Some(Content::Request(sent.packet)), true, sent.again),
                None => (None, true, false),
            },
            Side::Responses => match connection.responder.take(self.limits) {
                Some(sent) => {
                    (Some(Content::Response(sent.packet)), sent.packet.is_last, sent.again)
                }
                None => (None, true, false),
            },
        };
        self.fabric.packets.again += u64::from(again);
        let host = match side {
            Side::Requests => connection.from,
            Side::Responses => connection.to,
        };
        let has_more = match side {
            Side::Requests => connection.requester.has_requests(),
            Side::Responses => connection.responder.has_responses(),
        };
        let turns = &mut self.nics[usize::from(host)].turns[self.service.queue(side)];
        match self.service {
            Service::PacketByPacket => {
                connection.in_turn[side as usize] = has_more;
                if has_more {
                    turns.push_back(turn);
                }
            }
            Service::MessageByMessage if !is_last => turns.push_front(turn),
            Service::MessageByMessage => {}
        }
        content.map(|content| Packet { connection: number, content })
    }

    fn receiver(&self, packet: Packet) -> u16 {
        let connection = &self.connections[packet.connection as usize];
        match packet.content {
            Content::Request(_) => connection.to,
            Content::Response(_) | Content::Refusal => connection.from,
        }
    }

    const fn wire_len(&self, packet: Packet) -> u32 {
        match packet.content {
            Content::Request(_) | Content::Refusal => self.request_len,
            Content::Response(response) => response.len + self.framing.overhead,
        }
    }

    fn arrives(&mut self, packet: Packet) {
        let Connection { from, to, .. } = self.connections[packet.connection as usize];
        let receiver = self.receiver(packet);
        let peer = if receiver == from { to } else { from };
        let nic = &mut self.nics[usize::from(receiver)];
        let passes = nic.pass(self.agenda.now(), peer);
        // None overtakes another.
        if passes > self.agenda.now() || nic.passing > 0 {
            nic.passing += 1;
            self.agenda.at(passes, Event::Passes(packet));
        } else {
            self.passes(packet);
        }
    }

    fn passes(&mut self, packet: Packet) {
        let number = packet.connection;
        let connection = &mut self.connections[number as usize];
        match packet.content {
            Content::Request(request) => match connection.responder.handle(request) {
                Asked::Accepted => self.enqueue(number, Side::Responses, 1),
                Asked::Refused => self.refuse(number),
                Asked::Waits | Asked::Gap => {}
            },
            Content::Response(response) => match connection.requester.handle(response.number) {
                Received::Taken => self.progress(number),
                Received::Completed(op) => {
                    self.progress(number);
                    self.begin_reads(number);
                    self.books.complete(self.agenda.now(), op);
                    if op == super::work::TRANSFER
                        && let Some(transfer) = self.books.next_transfer()
                    {
                        self.post(transfer);
                    }
                }
                Received::Gap => self.handle_gap(number),
                Received::Old => {}
            },
            Content::Refusal => self.handle_gap(number),
        }
    }

    fn refuse(&mut self, connection: u32) {
        let host = self.connections[connection as usize].to;
        let refusal = Packet { connection, content: Content::Refusal };
        self.nics[usize::from(host)].refusals.push_back(refusal);
        self.send(host);
    }

    fn handle_gap(&mut self, number: u32) {
        let requests = self.connections[number as usize].requester.handle_gap();
        self.enqueue(number, Side::Requests, requests);
    }

    fn close(self) -> Outcome {
        let misses = self.nics.iter().filter_map(|nic| nic.cache.as_ref()).map(StateCache::misses);
        let misses = misses.sum::<u64>() - self.first_misses;
        Outcome { packets: self.fabric.packets, misses, ..self.books.close() }
    }
}

/// The states that the NIC of a host holds: those of as many peers as it has room for.
fn cache(
    options: &RdmaOptions,
    constants: &Constants,
    hosts: u32,
    host: u32,
    seed: u64,
) -> Option<StateCache> {
    let entries = constants.count(Constant::CachedStates);
    if hosts - 1 <= entries {
        return None;
    }
    let replacement = if options.random_replacement {
        Replacement::Random(Prng::new(seed).fork(0xcac4e).fork(host.into()).next())
    } else {
        Replacement::LeastRecentlyUsed
    };
    let penalty = Picos::nanos(constants.time(Constant::StateFetch).as_nanos() as u64);
    let mut cache = StateCache::new(CacheOptions { entries, penalty, replacement }, hosts);
    let peers = (0..hosts).filter(|&peer| peer != host);
    peers.take(entries as usize).for_each(|peer| {
        cache.use_state(peer);
    });
    Some(cache)
}
