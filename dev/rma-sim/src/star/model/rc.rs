//! A server's NIC of today: each frame of a reliable connection, in or out, needs the state of its
//! connection, and the one pipeline stops while that is fetched (StaR §II-B2).
//!
//! A call is three messages and their ACKs, and one message back and its ACK: 8 frames. Clients
//! have all state that they need.

use std::collections::VecDeque;

use super::{
    cache::{CacheOptions, StateCache},
    frames::Frame,
    groups::{GroupOptions, Groups},
    load::{MESSAGES, Workload},
    network::{Event, Network, Nic, Side},
    time::Picos,
};

/// The options of the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RcOptions {
    /// Its memory for state; `None`: it has all of it.
    pub cache: Option<CacheOptions>,
    /// The time of a frame in the pipeline besides.
    pub service: Picos,
    /// The order of frames.
    pub order: Order,
    /// Whether, and how, software lets only some connections begin something.
    pub groups: Option<GroupOptions>,
}

/// The order of frames through the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The one that has waited longest, in or out.
    Arrival,
    /// One in and one out, by turns, if both wait.
    Alternating,
}

#[derive(Clone, Copy, Debug)]
struct Passing {
    order: u64,
    connection: u32,
    frame: Frame,
}

/// The NIC, and the clients' ends of its connections.
#[derive(Debug)]
pub struct Rc {
    options: RcOptions,
    workload: Workload,
    cache: Option<StateCache>,
    groups: Option<Groups>,
    /// Frames that wait for the pipeline: out, in.
    waiting: [VecDeque<Passing>; 2],
    passing: Option<(Side, Passing)>,
    /// The queue that was served last.
    last: Side,
    entered: u64,
}

impl Rc {
    /// An idle NIC with so many connections.
    #[must_use]
    pub fn new(
        options: RcOptions,
        workload: Workload,
        connections: u32,
        network: &mut Network,
    ) -> Self {
        Self {
            options,
            workload,
            cache: options.cache.map(|it| StateCache::new(it, connections)),
            groups: options.groups.map(|it| Groups::new(it, connections, network)),
            waiting: [VecDeque::new(), VecDeque::new()],
            passing: None,
            last: Side::Client,
            entered: 0,
        }
    }

    /// A frame on its way to `to` comes to the pipeline.
    fn enter(&mut self, network: &mut Network, to: Side, connection: u32, frame: Frame) {
        self.entered += 1;
        let passing = Passing { order: self.entered, connection, frame };
        self.waiting[to as usize].push_back(passing);
        if self.passing.is_none() {
            self.go_on(network);
        }
    }

    /// Begins with the next frame, if one waits.
    fn go_on(&mut self, network: &mut Network) {
        let [out, inward] = &self.waiting;
        let to = match (out.front(), inward.front(), self.options.order) {
            (None, None, _) => return,
            (Some(_), None, _) => Side::Client,
            (None, Some(_), _) => Side::Server,
            (Some(out), Some(inward), Order::Arrival) if out.order < inward.order => Side::Client,
            (Some(_), Some(_), Order::Arrival) => Side::Server,
            (Some(_), Some(_), Order::Alternating) => match self.last {
                Side::Client => Side::Server,
                Side::Server => Side::Client,
            },
        };
        self.last = to;
        let Some(next) = self.waiting[to as usize].pop_front() else { return };
        let stopped = self.cache.as_mut().map_or(Picos::ZERO, |it| it.use_state(next.connection));
        self.passing = Some((to, next));
        network.at(network.now() + self.options.service + stopped, Event::Passed);
    }

    /// Does the effect of a frame that has passed.
    fn passed(&mut self, network: &mut Network, to: Side, connection: u32, frame: Frame) {
        match (to, frame) {
            (Side::Client, _) => network.send(Side::Client, connection, &[frame]),
            (Side::Server, Frame::Ack) => self.acknowledged(network),
            (Side::Server, _) => {
                network.give(Side::Server, connection);
                if frame == Frame::Data {
                    self.enter(network, Side::Client, connection, Frame::Ack);
                }
            }
        }
    }

    fn acknowledged(&mut self, network: &mut Network) {
        if let Some(groups) = &mut self.groups {
            groups.acknowledged(network);
        }
    }

    fn begin(&mut self, network: &mut Network, side: Side, connection: u32) {
        let (messages, frame) = match (side, self.workload) {
            (Side::Client, _) => (MESSAGES, Frame::Data),
            (Side::Server, Workload::Rpc | Workload::Ml) => (1, Frame::Data),
            (Side::Server, Workload::Read) => (1, Frame::Request),
        };
        for _ in 0..messages {
            if let Some(groups) = &mut self.groups {
                groups.begun();
            }
            match side {
                Side::Client => network.send(Side::Server, connection, &[frame]),
                Side::Server => self.enter(network, Side::Client, connection, frame),
            }
        }
    }
}

impl Nic for Rc {
    fn post(&mut self, network: &mut Network, side: Side, connection: u32) {
        if self.groups.as_mut().is_none_or(|it| it.may_begin(side, connection)) {
            self.begin(network, side, connection);
        }
    }

    fn handle(&mut self, network: &mut Network, event: Event) {
        match event {
            Event::Arrives(Side::Server, connection, frame, _) => {
                self.enter(network, Side::Server, connection, frame);
            }
            Event::Arrives(Side::Client, connection, Frame::Data, _) => {
                network.give(Side::Client, connection);
                network.send(Side::Server, connection, &[Frame::Ack]);
            }
            Event::Arrives(Side::Client, connection, Frame::Request, _) => {
                network.send(Side::Server, connection, &[Frame::Response]);
            }
            Event::Arrives(Side::Client, ..) => self.acknowledged(network),
            Event::Passed => {
                if let Some((to, Passing { connection, frame, .. })) = self.passing.take() {
                    self.passed(network, to, connection, frame);
                }
                if self.passing.is_none() {
                    self.go_on(network);
                }
            }
            Event::Slot => {
                let may = self.groups.as_mut().map(|it| it.handle_slot(network));
                for (side, connection) in may.into_iter().flatten() {
                    self.begin(network, side, connection);
                }
            }
            Event::Posts(..) | Event::Turn => {}
        }
    }

    fn misses(&self) -> u64 {
        self.cache.as_ref().map_or(0, StateCache::misses)
    }
}
