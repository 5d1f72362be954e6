//! StaR: a server's NIC without any state of connections, and the clients that hold it (StaR §III).
//!
//! The paper's sequence has 24 frames a call, of which the server's three RECVs and its SEND take a
//! WQEP, a CQEP and two EAs each. Ours has fewer, by [`Fusion`], of which each part can be had
//! without the others.
//!
//! The server's engine runs in turns, one behind the other. A turn takes what has come, and what
//! has been posted, before it begins, and what that makes leaves at once. Its length is therefore
//! what one EA can cover; what a turn's work takes is not modelled. A client acts on each frame
//! when it comes.
//!
//! The server posts its RECVs of a call again when it answers that call, and before the SEND.
//! Invariant: a client sends an RD only while a RECV of the server is open.

use std::collections::VecDeque;

use super::{
    frames::Frame,
    load::MESSAGES,
    network::{Event, Network, Nic, Side},
    time::Picos,
};

/// The fusions that make fewer frames and packets than the paper has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fusion {
    /// Several work requests share a WQEP, and several completions a CQEP.
    pub several: bool,
    /// The last RD of a SEND completes it: no CQEP.
    pub completes: bool,
    /// The data of short SENDs is in the WQEP: no GD, no GDA.
    pub inline: bool,
    /// One EA answers all frames of a connection that a turn has found.
    pub one_ea: bool,
    /// Frames of a connection that leave at the same time share a packet, as those of our engines
    /// do. (Ours also share across the connections of two hosts; that is not counted here.)
    pub packets: bool,
    /// A WQEP whose SENDs are complete at once is answered by their CQEP alone. It wants no EA
    /// either: the server's next WQEs say that it came, and a server that stops, and so is asked
    /// for the EA, is in none of these loads.
    pub one_answer: bool,
}

impl Fusion {
    /// The paper's sequence.
    pub const FAITHFUL: Self = Self {
        several: false,
        completes: false,
        inline: false,
        one_ea: false,
        packets: false,
        one_answer: false,
    };
    /// Fewer frames, each in a packet of its own.
    pub const FRAMES: Self = Self {
        several: true,
        completes: true,
        inline: true,
        one_ea: true,
        one_answer: true,
        ..Self::FAITHFUL
    };
    /// Fewer frames in shared packets: what is sent by default.
    pub const DEFAULT: Self = Self { packets: true, ..Self::FRAMES };
    /// The default, but a WQEP has an EA and a CQEP, and that an EA, as in the paper.
    pub const THREE_ANSWERS: Self = Self { one_answer: false, ..Self::DEFAULT };
}

/// The options of the server's NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StarOptions {
    /// The fusions of frames.
    pub fusion: Fusion,
    /// How long a turn of the server's engine is; 0: each frame has one of its own, at once.
    pub turn: Picos,
}

/// The find of a turn.
#[derive(Clone, Copy, Debug)]
enum Found {
    Frame(Frame),
    Posted,
}

/// The state of a client for a connection.
#[derive(Clone, Copy, Debug)]
struct Connection {
    /// RECVs of the server that are open.
    receives: u32,
    /// SENDs of the client that wait for one.
    waiting: u32,
}

/// The server's engine, and the clients.
#[derive(Debug)]
pub struct Star {
    options: StarOptions,
    clients: Vec<Connection>,
    /// The finds that the next turn takes, in the order in which it came.
    found: VecDeque<(u32, Found)>,
    /// The frames that the turn sends, by connection, in the order in which they come up first;
    /// where each connection stands is in `place`.
    leaving: Vec<(u32, Vec<Frame>)>,
    /// That place, and 1; 0: nowhere.
    place: Vec<u32>,
}

impl Star {
    /// An idle server with so many connections, whose RECVs for the first call are posted.
    #[must_use]
    pub fn new(options: StarOptions, connections: u32) -> Self {
        let connections = connections as usize;
        Self {
            options,
            clients: vec![Connection { receives: MESSAGES, waiting: 0 }; connections],
            found: VecDeque::new(),
            leaving: Vec::new(),
            place: vec![0; connections],
        }
    }

    fn send(&self, network: &mut Network, to: Side, connection: u32, frames: &[Frame]) {
        if self.options.fusion.packets {
            return network.send(to, connection, frames);
        }
        for frame in frames {
            network.send(to, connection, &[*frame]);
        }
    }

    fn find(&mut self, network: &mut Network, connection: u32, what: Found) {
        if self.found.is_empty() {
            let turn = self.options.turn.0.max(1);
            let next = Picos(network.now().0.next_multiple_of(turn));
            network.at(next, Event::Turn);
        }
        self.found.push_back((connection, what));
    }

    fn turn(&mut self, network: &mut Network) {
        let Fusion { several, completes, inline, one_ea, .. } = self.options.fusion;
        for (connection, what) in core::mem::take(&mut self.found) {
            let mut leaving = |frame| self.leave(connection, frame);
            match what {
                Found::Frame(Frame::Rd) => {
                    leaving(if one_ea { Frame::Ea { frames: 1, rds: 1 } } else { Frame::Rda });
                    if completes {
                        network.give(Side::Server, connection);
                    }
                }
                Found::Frame(Frame::Cqep { receives, is_ea, .. }) => {
                    if !is_ea {
                        leaving(Frame::Ea { frames: 1, rds: 0 });
                    }
                    for _ in 0..receives {
                        network.give(Side::Server, connection);
                    }
                }
                Found::Frame(Frame::Gd) => leaving(Frame::Gda),
                Found::Frame(_) => {}
                Found::Posted if several => {
                    leaving(Frame::Wqep { receives: MESSAGES, sends: 1, inline });
                }
                Found::Posted => {
                    for _ in 0..MESSAGES {
                        leaving(Frame::Wqep { receives: 1, sends: 0, inline: false });
                    }
                    leaving(Frame::Wqep { receives: 0, sends: 1, inline });
                }
            }
        }
        for (connection, frames) in core::mem::take(&mut self.leaving) {
            self.place[connection as usize] = 0;
            self.send(network, Side::Client, connection, &frames);
        }
    }

    /// Puts `frame` to what leaves for `connection`; one EA grows to answer another frame.
    fn leave(&mut self, connection: u32, frame: Frame) {
        let place = &mut self.place[connection as usize];
        if *place == 0 {
            self.leaving.push((connection, Vec::new()));
            *place = self.leaving.len() as u32;
        }
        let leaving = &mut self.leaving[*place as usize - 1].1;
        if let Frame::Ea { frames, rds } = frame
            && self.options.fusion.one_ea
        {
            for there in &mut *leaving {
                if let Frame::Ea { frames: all, rds: all_rds } = there {
                    (*all, *all_rds) = (*all + frames, *all_rds + rds);
                    return;
                }
            }
        }
        leaving.push(frame);
    }

    /// Adds an RD for each SEND of the client that has a RECV now.
    fn rds(&mut self, connection: u32, frames: &mut Vec<Frame>) {
        let Connection { receives, waiting } = &mut self.clients[connection as usize];
        let may = (*waiting).min(*receives);
        (*receives, *waiting) = (*receives - may, *waiting - may);
        frames.extend((0..may).map(|_| Frame::Rd));
    }

    /// Adds CQEPs for RECVs of the server, whose RDs have been answered.
    fn completions(&self, receives: u32, frames: &mut Vec<Frame>) {
        match self.options.fusion {
            Fusion { completes: true, .. } => {}
            Fusion { several: true, .. } if receives > 0 => {
                frames.push(Frame::Cqep { receives, sends: 0, is_ea: false });
            }
            Fusion { .. } => {
                frames.extend((0..receives).map(|_| Frame::Cqep {
                    receives: 1,
                    sends: 0,
                    is_ea: false,
                }));
            }
        }
    }

    fn at_client(&mut self, network: &mut Network, connection: u32, frame: Frame) {
        let mut frames = Vec::new();
        match frame {
            Frame::Wqep { receives, sends, inline } => {
                self.clients[connection as usize].receives += receives;
                let complete = inline && sends > 0;
                let is_ea = complete && self.options.fusion.one_answer;
                if !is_ea {
                    frames.push(Frame::EaOfClient);
                }
                if complete {
                    frames.push(Frame::Cqep { receives: 0, sends, is_ea });
                    (0..sends).for_each(|_| network.give(Side::Client, connection));
                } else {
                    frames.extend((0..sends).map(|_| Frame::Gd));
                }
                self.rds(connection, &mut frames);
            }
            Frame::Gda => {
                network.give(Side::Client, connection);
                frames.push(Frame::Cqep { receives: 0, sends: 1, is_ea: false });
            }
            Frame::Rda => self.completions(1, &mut frames),
            Frame::Ea { rds, .. } => self.completions(rds, &mut frames),
            _ => {}
        }
        self.send(network, Side::Server, connection, &frames);
    }
}

impl Nic for Star {
    fn post(&mut self, network: &mut Network, side: Side, connection: u32) {
        match side {
            Side::Server => self.find(network, connection, Found::Posted),
            Side::Client => {
                self.clients[connection as usize].waiting += MESSAGES;
                let mut frames = Vec::new();
                self.rds(connection, &mut frames);
                self.send(network, Side::Server, connection, &frames);
            }
        }
    }

    fn handle(&mut self, network: &mut Network, event: Event) {
        match event {
            Event::Arrives(Side::Server, connection, frame, _) => {
                self.find(network, connection, Found::Frame(frame));
            }
            Event::Arrives(Side::Client, connection, frame, _) => {
                self.at_client(network, connection, frame);
            }
            Event::Turn => self.turn(network),
            Event::Posts(..) | Event::Passed | Event::Slot => {}
        }
    }
}
