//! Two-sided software, such as Snap's: a read is a message to the other host, whose software
//! answers with another one.
//!
//! Each host has some cores; all that it does with one peer is done by the same. A core takes what
//! waits in the order in which it came, for a time that a message and each of its bytes cost. It
//! answers a request at once, and hands packets to the device as it is done with them, so a large
//! message is on the wire before all of it has been worked on.
//!
//! Better here than in software: nobody sleeps, no interrupt comes, no other work runs, and
//! the network loses nothing.

use core::time::Duration;
use std::collections::VecDeque;

use super::{
    agenda::Agenda,
    constants::{Constant, Constants},
    error::BaselineError,
    fabric::{Fabric, FabricOptions},
    outcome::Outcome,
    work::{Books, OpId, TRANSFER, ToDo, Work},
};
use crate::{
    flows::traffic::Framing,
    net::queue::{Queue, QueueOptions},
};

pub(super) fn framing(constants: &Constants) -> Framing {
    Framing {
        payload: constants.count(Constant::SoftwarePayload),
        overhead: constants.count(Constant::SoftwareOverhead),
    }
}

#[derive(Clone, Copy, Debug)]
enum Content {
    Request,
    /// Some of the answer.
    Answer {
        len: u32,
        is_last: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    todo: ToDo,
    content: Content,
}

/// Something that a core has to do.
#[derive(Clone, Copy, Debug)]
enum Task {
    Ask(ToDo),
    Receive(Packet),
    /// Send an answer, of which so many bytes are sent.
    Answer(ToDo, u64),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next op of a host begins.
    Begins(u16),
    /// A core has done what it began.
    Done {
        host: u16,
        core: u32,
    },
    AtSwitch(Packet),
    /// A device has all of a packet.
    Arrives(Packet),
}

/// A core, and the tasks that wait for it: it is at work on the first.
#[derive(Clone, Debug, Default)]
struct Core {
    tasks: VecDeque<Task>,
}

#[derive(Debug)]
struct Host {
    cores: Vec<Core>,
    device: Queue,
}

/// The time that messages take a core.
#[derive(Clone, Copy, Debug)]
struct Costs {
    message: f64,
    byte: f64,
    request: f64,
}

impl Costs {
    fn new(constants: &Constants) -> Self {
        Self {
            message: constants.get(Constant::MessageTime),
            byte: constants.get(Constant::ByteTime),
            request: constants.get(Constant::SoftwareRequest),
        }
    }

    fn of(self, task: Task, payload: u32) -> Duration {
        let of = |messages: f64, bytes: f64| messages * self.message + bytes * self.byte;
        let nanos = match task {
            Task::Ask(_) | Task::Receive(Packet { content: Content::Request, .. }) => {
                of(1.0, self.request)
            }
            Task::Receive(Packet { content: Content::Answer { len, is_last }, .. }) => {
                of(f64::from(u8::from(is_last)), len.into())
            }
            Task::Answer(todo, sent) => {
                let len = (todo.len - sent).min(payload.into());
                of(f64::from(u8::from(sent == 0)), len as f64)
            }
        };
        Duration::from_nanos(nanos.round() as u64)
    }
}

#[derive(Debug)]
struct Network {
    costs: Costs,
    framing: Framing,
    request: u32,
    agenda: Agenda<Event>,
    fabric: Fabric,
    books: Books,
    hosts: Vec<Host>,
}

pub(super) fn run(constants: &Constants, work: &Work, seed: u64) -> Result<Outcome, BaselineError> {
    let mut network = Network::new(constants, work, seed)?;
    network.begin();
    while let Some(event) = network.agenda.next() {
        network.handle(event);
    }
    Ok(Outcome { packets: network.fabric.packets, ..network.books.close() })
}

impl Network {
    fn new(constants: &Constants, work: &Work, seed: u64) -> Result<Self, BaselineError> {
        let traffic = &work.traffic;
        let request = constants.count(Constant::SoftwareRequest) + traffic.framing.overhead;
        let cores = constants.count(Constant::Cores) as usize;
        let device = QueueOptions { rate: traffic.rate, len: u64::MAX };
        let host = |_| Host { cores: vec![Core::default(); cores], device: Queue::new(device) };
        Ok(Self {
            costs: Costs::new(constants),
            framing: traffic.framing,
            request,
            agenda: Agenda::default(),
            books: Books::new(work, seed)?,
            fabric: Fabric::new(FabricOptions::LOSSLESS, constants, traffic, request, seed),
            hosts: (0..traffic.hosts).map(host).collect(),
        })
    }

    fn begin(&mut self) {
        for host in 0..=self.books.last_host() {
            self.schedule(host);
        }
        self.next_transfer();
    }

    fn next_transfer(&mut self) {
        if let Some(transfer) = self.books.next_transfer() {
            self.give(transfer.from, transfer.destination, Task::Ask(transfer));
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
                    self.give(host, todo.destination, Task::Ask(todo));
                }
                self.schedule(host);
            }
            Event::Done { host, core } => self.done(host, core),
            Event::AtSwitch(packet) => {
                let (to, len) = (Self::receiver(packet), self.wire_len(packet));
                if let Some(at) = self.fabric.cross(self.agenda.now(), to, len) {
                    self.agenda.at(at, Event::Arrives(packet));
                }
            }
            Event::Arrives(packet) => {
                let ToDo { from, destination, .. } = packet.todo;
                let receiver = Self::receiver(packet);
                let peer = if receiver == from { destination } else { from };
                self.give(receiver, peer, Task::Receive(packet));
            }
        }
    }

    /// Something comes to the core that works for `peer`.
    fn give(&mut self, host: u16, peer: u16, task: Task) {
        let cores = &mut self.hosts[usize::from(host)].cores;
        let core = usize::from(peer) % cores.len();
        cores[core].tasks.push_back(task);
        if cores[core].tasks.len() == 1 {
            self.work(host, core as u32);
        }
    }

    /// A core begins with the first of its tasks.
    fn work(&mut self, host: u16, core: u32) {
        if let Some(&task) = self.hosts[usize::from(host)].cores[core as usize].tasks.front() {
            let at = self.agenda.now() + self.costs.of(task, self.framing.payload);
            self.agenda.at(at, Event::Done { host, core });
        }
    }

    fn done(&mut self, host: u16, core: u32) {
        let tasks = &mut self.hosts[usize::from(host)].cores[core as usize].tasks;
        let Some(task) = tasks.pop_front() else { return };
        match task {
            Task::Ask(todo) => self.send(host, Packet { todo, content: Content::Request }),
            Task::Receive(Packet { todo, content: Content::Request }) => {
                tasks.push_front(Task::Answer(todo, 0));
            }
            Task::Receive(Packet { todo, content: Content::Answer { is_last, .. } }) => {
                if is_last {
                    self.complete(todo.op);
                }
            }
            Task::Answer(todo, sent) => {
                let len = (todo.len - sent).min(self.framing.payload.into());
                let is_last = sent + len == todo.len;
                if !is_last {
                    tasks.push_front(Task::Answer(todo, sent + len));
                }
                let content = Content::Answer { len: len as u32, is_last };
                self.send(host, Packet { todo, content });
            }
        }
        self.work(host, core);
    }

    fn complete(&mut self, op: OpId) {
        self.books.complete(self.agenda.now(), op);
        if op == TRANSFER {
            self.next_transfer();
        }
    }

    fn send(&mut self, host: u16, packet: Packet) {
        let len = self.wire_len(packet);
        let now = self.agenda.now();
        if let Some(left) = self.hosts[usize::from(host)].device.take(now, len.into()) {
            let at_switch = self.fabric.at_switch(left);
            self.agenda.at(at_switch, Event::AtSwitch(packet));
        }
    }

    const fn receiver(packet: Packet) -> u16 {
        match packet.content {
            Content::Request => packet.todo.destination,
            Content::Answer { .. } => packet.todo.from,
        }
    }

    const fn wire_len(&self, packet: Packet) -> u32 {
        match packet.content {
            Content::Request => self.request,
            Content::Answer { len, .. } => len + self.framing.overhead,
        }
    }
}
