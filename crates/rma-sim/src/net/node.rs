//! A host of the simulated network: a shipped [`Nic`] behind a device of some rate and MTU, with a
//! clock of its own, which can be stopped. It takes frames and gives them as an engine does, or as
//! the paper's hardware.
//!
//! Everything here takes true time; the NIC is only ever told what its node's clock shows.

use core::{cell::Cell, time::Duration};
use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    backend::{BATCH, RxFrame, RxPacket, Transmit, TxFrame},
    command::{Command, Completion},
    engine,
    error::{CommandError, DropReason},
    nic::{ConfigError, Nic, NicConfigBuilder, NicPlace, Quantum, ReceiveLenMax},
    time::{Clock, Instant},
};

use crate::net::{
    clock::{ClockOptions, LocalClock},
    frame::{Frame, ip_udp_len, wire_len},
    queue::serialization,
};

/// What a node is made of.
#[derive(Clone, Copy, Debug)]
pub struct NodeOptions {
    /// The NIC's settings.
    pub nic: NicConfigBuilder,
    /// Where it is; `receive_len_max` is set from `mtu`.
    pub place: NicPlace,
    /// The device's MTU: the largest IP packet that it sends and receives.
    pub mtu: u16,
    /// The device's rate of sending, in bytes a second; at least 1. While it sends what it was
    /// given it gets no more, so inbound queues fill as they do in front of a real device.
    pub rate: u64,
    /// How frames come to the NIC and leave it.
    pub pace: Pace,
    /// How many frames the device holds for an engine that does not run; further ones are lost.
    pub receive_ring: u32,
    /// The node's clock.
    pub clock: ClockOptions,
}

/// How frames come to a NIC and leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One by one, as in the paper's hardware.
    Hardware,
    /// In the turns of an engine: all frames that have come since the last one, up to
    /// [`engine::BURST`], then as many out as its quantum admits; bulk requests gather.
    Engine {
        /// The shortest time between two turns for frames alone. What else there is to do has a
        /// turn at once, and so have frames when there is a burst of them.
        turn: Duration,
    },
}

impl Pace {
    /// How soon after a turn frames alone have another one.
    const fn turn(self) -> Duration {
        match self {
            Self::Hardware => Duration::ZERO,
            Self::Engine { turn } => turn,
        }
    }
}

/// How soon an engine that spins over requests which gather looks again, at the earliest.
const SPIN: Duration = Duration::from_micros(1);

/// Whether a node's software runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It does.
    Running,
    /// It is stopped, as by SIGSTOP or a busy scheduler. Its device goes on.
    Paused,
    /// It is gone, and all its state with it.
    Down,
}

/// A copy of a frame that has come to a node, or is on its way there.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) frame: Arc<Frame>,
    /// What arrives, if that is not what was sent.
    pub(crate) altered: Option<Arc<[u8]>>,
    pub(crate) extra: bool,
}

/// What became of a frame, and what the NIC counted meanwhile.
#[derive(Debug)]
pub(crate) struct Handled {
    pub(crate) result: Result<(), DropReason>,
    /// A late effect.
    pub(crate) counted_late: bool,
    /// A request that it had accepted, and refuses to make room for this one.
    pub(crate) pushed_out: bool,
}

/// How long a node is stopped while it handles a burst of frames: at which of them, and how often
/// its clock is read for that one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    pub(crate) length: Duration,
    pub(crate) frame: usize,
    pub(crate) readings_before: u32,
}

/// The clock of a node that is stopped between two readings.
struct Readings {
    before: Instant,
    after: Instant,
    /// How many frames are handled before that one.
    frames_left: Cell<usize>,
    left: Cell<u32>,
}

impl Readings {
    /// A frame has been handled. Whatever is read for the next ones, if it was the one, is read
    /// after.
    fn frame_over(&self) {
        match self.frames_left.get().checked_sub(1) {
            Some(left) => self.frames_left.set(left),
            None => self.left.set(0),
        }
    }
}

impl Clock for Readings {
    fn now(&self) -> Instant {
        if self.frames_left.get() > 0 {
            return self.before;
        }
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                self.before
            }
            None => self.after,
        }
    }
}

/// A host. Not public: a simulation shows it as its NIC.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) nic: Nic,
    pub(crate) clock: LocalClock,
    pub(crate) condition: Condition,
    /// Whether solicitations are lost on their way to its software.
    pub(crate) is_silent: bool,
    /// Which of all pauses its last one was.
    pub(crate) pause: u64,
    /// When it was resumed last.
    pub(crate) resumed_at: Option<Instant>,
    /// What has arrived since the last turn.
    pub(crate) ring: VecDeque<Arrival>,
    ring_len: usize,
    pace: Pace,
    /// When the last turn was.
    turned_at: Instant,
    /// When the next turn is scheduled for, if it is.
    pub(crate) turn_scheduled: Option<Instant>,
    mtu: usize,
    rate: u64,
    /// When the device can take the next frame.
    device_free_at: Instant,
    /// Whether an event at `device_free_at` is scheduled.
    pub(crate) wake_scheduled: bool,
    /// When the NIC has something to expire; `None` while the node does not run.
    pub(crate) timeout_at: Option<Instant>,
    /// Room for [`BATCH`] frames.
    tx: Box<[u8]>,
    rx: Vec<Vec<u8>>,
}

/// A frame that a device was given to send.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) transmit: Transmit,
    pub(crate) bytes: Box<[u8]>,
    /// When the last byte has left the device.
    pub(crate) left_at: Instant,
}

impl Node {
    /// A node that starts at true time `now`.
    pub(crate) fn new(now: Instant, options: &NodeOptions) -> Result<Self, ConfigError> {
        let mtu = usize::from(options.mtu);
        let receive_len_max = ReceiveLenMax::of_mtu(mtu);
        let config =
            options.nic.build(options.place.with(|it| it.receive_len_max = receive_len_max))?;
        Ok(Self {
            nic: Nic::new(config),
            clock: LocalClock::new(now, options.clock),
            condition: Condition::Running,
            is_silent: false,
            pause: 0,
            resumed_at: None,
            ring: VecDeque::new(),
            ring_len: options.receive_ring as usize,
            pace: options.pace,
            turned_at: now,
            turn_scheduled: None,
            mtu,
            rate: options.rate,
            device_free_at: now,
            wake_scheduled: false,
            timeout_at: None,
            tx: vec![0; receive_len_max.ipv4 * BATCH].into(),
            rx: Vec::new(),
        })
    }

    pub(crate) fn handle_command(
        &mut self,
        now: Instant,
        command: Command,
    ) -> Result<(), CommandError> {
        self.nic.handle_command(self.clock.show(now), command)
    }

    /// Holds a frame until the node runs again. Gives it back if the ring is full.
    pub(crate) fn hold(&mut self, arrival: Arrival) -> Result<(), Arrival> {
        if self.ring.len() >= self.ring_len {
            return Err(arrival);
        }
        self.ring.push_back(arrival);
        Ok(())
    }

    /// Keeps a frame until the next turn. Returns when that is; at the latest when there is a burst
    /// of them.
    pub(crate) fn keep(&mut self, now: Instant, arrival: Arrival) -> Instant {
        self.ring.push_back(arrival);
        let is_full = self.ring.len() >= engine::BURST.min(self.ring_len);
        if is_full { now } else { now.max(self.turned_at + self.pace.turn()) }
    }

    /// Receives a burst of frames, of each of which the NIC gets a copy that it may change. The
    /// node is stopped for a while as `stall` says, in the midst of it.
    pub(crate) fn handle_frames(
        &mut self,
        now: Instant,
        arrivals: &[Arrival],
        stall: Stall,
        handled: &mut Vec<Handled>,
    ) {
        if self.rx.len() < arrivals.len() {
            self.rx.resize_with(arrivals.len(), Vec::new);
        }
        let copies = arrivals.iter().zip(&mut self.rx).map(|(arrival, copy)| {
            let Arrival { frame, altered, .. } = arrival;
            copy.clear();
            copy.extend_from_slice(altered.as_deref().unwrap_or(&frame.bytes));
            let Transmit { source, destination, port, source_port, .. } = frame.transmit;
            let reply_len_max = self.mtu - ip_udp_len(source.is_ipv4());
            RxFrame::alone(RxPacket {
                source,
                destination,
                port,
                source_port,
                reply_len_max,
                link: None,
                bytes: copy,
            })
        });
        let mut copies: Vec<_> = copies.collect();
        let before = self.clock.show(now);
        let readings = Readings {
            before,
            after: self.clock.show(now + stall.length),
            frames_left: Cell::new(stall.frame),
            left: Cell::new(stall.readings_before),
        };
        let counters = self.nic.counters().clone();
        let mut counted = [counters.late_effects(), counters.pushed_out()];
        self.nic.handle_frames_and_tell(before, &readings, &mut copies, |result| {
            readings.frame_over();
            let now = [counters.late_effects(), counters.pushed_out()];
            let [counted_late, pushed_out] = [0, 1].map(|index| now[index] > counted[index]);
            counted = now;
            handled.push(Handled { result, counted_late, pushed_out });
        });
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.nic.handle_timeout(self.clock.show(now));
    }

    /// A turn of the engine begins.
    pub(crate) const fn begin_turn(&mut self, now: Instant) {
        self.turned_at = now;
    }

    /// What the NIC sends now, into `sent`, if the device is free. Returns when to ask again, if
    /// some of it waits for more.
    pub(crate) fn poll_transmits(&mut self, now: Instant, sent: &mut Vec<Sent>) -> Option<Instant> {
        let local = self.clock.show(now);
        // A device that is infinitely fast is free at once.
        while self.device_free_at <= now && self.nic.wants_transmit() {
            let (most, mut quantum) = match self.pace {
                Pace::Hardware => (1, Quantum::one_frame()),
                Pace::Engine { turn } if self.nic.gathers(local) => {
                    return Some(now + turn.max(SPIN));
                }
                Pace::Engine { .. } => {
                    (engine::BURST, engine::quantum(self.nic.latency_class_seen_at(), local))
                }
            };
            let before = sent.len();
            while sent.len() - before < most {
                let wanted = self.nic.frames_waiting().clamp(1, BATCH);
                let wanted = wanted.min(most - (sent.len() - before));
                let len = self.tx.len() / BATCH;
                let mut frames: Vec<_> =
                    self.tx.chunks_exact_mut(len).take(wanted).map(TxFrame::new).collect();
                let count = self.nic.poll_transmits(local, &mut frames, &mut quantum);
                for TxFrame { bytes, transmit, .. } in &frames[..count] {
                    let transmit = transmit.expect("the NIC has written it");
                    let wire_len = wire_len(transmit.len, transmit.source.is_ipv4());
                    let begun_at = self.device_free_at.max(now);
                    self.device_free_at = begun_at + serialization(self.rate, wire_len as u64);
                    let (bytes, left_at) = (bytes[..transmit.len].into(), self.device_free_at);
                    sent.push(Sent { transmit, bytes, left_at });
                }
                if count < wanted {
                    break;
                }
            }
            if sent.len() == before {
                break;
            }
        }
        None
    }

    /// When the device can take the next frame, if that is later than `now`.
    pub(crate) fn busy_until(&self, now: Instant) -> Option<Instant> {
        (self.device_free_at > now).then_some(self.device_free_at)
    }

    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        self.nic.poll_completion()
    }

    /// Looks when the NIC wants to be woken. Returns false if that should have been before now.
    pub(crate) fn set_timeout(&mut self, now: Instant) -> bool {
        let timeout = self.nic.poll_timeout();
        self.timeout_at = timeout.map(|local| self.clock.when(local));
        timeout.is_none_or(|local| local > self.clock.show(now))
    }
}
