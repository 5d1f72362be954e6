//! The thread in the middle of the wire: takes every Ethernet frame of one side to the other, and
//! does to those of 1RMA what its faults say. Others pass as they are, so that the hosts find each
//! other.
//!
//! One thread and one generator of random numbers, whose draws do not depend on what the draws
//! before came to: the same frames in the same order meet the same faults.

use core::{cmp::Reverse, time::Duration};
use std::{
    collections::BinaryHeap,
    sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel},
    thread::JoinHandle,
};

use rma_core::port::SourcePort;
use rma_lab::Netns;
use rma_sim::prng::Prng;
use rma_xdp::time::{Clock, TscClock};
use rustix::{
    event::{PollFd, PollFlags, poll},
    time::Timespec,
};

use super::{
    faults::{Fault, Faults, Tally},
    forge::{Captured, Forger, Store},
    frame::{around, back, complete_checksum, payload},
    lab::End,
    tap::Tap,
};

/// How long a question may wait for its answer before the thread is called stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Frames taken from one side before the other is looked at.
const BURST: usize = 64;

/// The most that a recording may hold, in bytes.
const TAPE_MAX: usize = 256 << 20;

type Question = Box<dyn FnOnce(&mut Forwarder) + Send>;

/// The wire, as a test holds it. Dropped, it ends.
#[derive(Debug)]
pub struct Wire {
    questions: Option<Sender<Question>>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// Joins two interfaces of `netns`: the one toward host a, the one toward host b.
    ///
    /// # Panics
    /// If a packet socket cannot be had.
    #[must_use]
    pub fn start(netns: &Netns, interfaces: [&str; 2], port: u16, seed: u64) -> Self {
        let taps = {
            let _inside = netns.enter().expect("the middle namespace");
            interfaces.map(|interface| Tap::open(interface).expect("a packet socket"))
        };
        let mut forwarder = Forwarder::new(taps, port, seed);
        let (questions, asked) = channel();
        let thread = std::thread::Builder::new()
            .name("hostile-wire".into())
            .spawn(move || forwarder.run(&asked))
            .expect("a thread");
        Self { questions: Some(questions), thread: Some(thread) }
    }

    /// Has the thread do something between two frames, and waits for the result.
    ///
    /// # Panics
    /// If the thread is gone or stuck.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Forwarder) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = sync_channel(1);
        let questions = self.questions.as_ref().expect("set until it is dropped");
        let asked = questions.send(Box::new(move |forwarder| {
            // Nobody waits any more for an answer that comes too late.
            let _ = answer.send(question(forwarder));
        }));
        asked.expect("the wire's thread has panicked: see above");
        answered.recv_timeout(STUCK_AFTER).expect("the wire's thread answers")
    }

    /// From now on these faults.
    pub fn set_faults(&self, faults: Faults) {
        self.ask(move |forwarder| forwarder.faults = faults);
    }

    /// From now on a good wire; what is on its way is lost.
    pub fn calm(&self) {
        self.ask(|forwarder| {
            forwarder.faults = Faults::NONE;
            forwarder.flights.clear();
        });
    }

    /// Returns the tally up to now.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.ask(|forwarder| forwarder.tally)
    }

    /// Delivers every frame that is kept of what ever came by once more: to the host it was sent to
    /// and, if `both`, also to the one that sent it. Returns how many once all are delivered.
    ///
    /// # Panics
    /// If that takes longer than it can.
    pub fn replay_all(&self, both: bool) -> usize {
        let count = self.begin_replay(both);
        self.wait_until_delivered();
        count
    }

    /// As [`Wire::replay_all`], but does not wait.
    pub fn begin_replay(&self, both: bool) -> usize {
        self.ask(move |forwarder| forwarder.replay_all(both))
    }

    /// Waits until nothing that was held back is left.
    ///
    /// # Panics
    /// If that takes longer than it can.
    pub fn wait_until_delivered(&self) {
        let clock = TscClock::new();
        while self.ask(|forwarder| !forwarder.flights.is_empty()) {
            assert!(clock.now().as_nanos() < 10_000_000_000, "the wire never empties");
            std::thread::yield_now();
        }
    }

    /// Begins to record every frame of 1RMA that a host sends.
    pub fn start_tape(&self) {
        self.ask(|forwarder| forwarder.tape = Some(Tape::default()));
    }

    /// Ends the recording and gives what is on it, in the order in which it came by.
    ///
    /// # Panics
    /// If nothing was being recorded, or the tape was too short.
    #[must_use]
    pub fn take_tape(&self) -> Vec<Captured> {
        let tape = self.ask(|forwarder| forwarder.tape.take()).expect("a recording was begun");
        assert!(tape.len <= TAPE_MAX, "{} bytes came by, too many to record", tape.len);
        tape.frames
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The thread sees that nobody can ask any longer, and ends.
        self.questions = None;
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(Err(panic)) = ended
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A frame on its way. `number` breaks ties in favour of the frame that came first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    due: u64,
    number: u64,
    toward: End,
    frame: Vec<u8>,
}

#[derive(Debug, Default)]
struct Tape {
    frames: Vec<Captured>,
    len: usize,
}

/// The state of the wire's thread. See [`Wire::ask`].
#[derive(Debug)]
pub struct Forwarder {
    /// In the order of [`End`].
    taps: [Tap; 2],
    port: u16,
    prng: Prng,
    forger: Forger,
    faults: Faults,
    tally: Tally,
    store: Store,
    flights: BinaryHeap<Reverse<Flight>>,
    number: u64,
    tape: Option<Tape>,
    clock: TscClock,
}

impl Forwarder {
    fn new(taps: [Tap; 2], port: u16, seed: u64) -> Self {
        let prng = Prng::new(seed);
        Self {
            taps,
            port,
            forger: Forger::new(prng.fork(1), port),
            prng,
            faults: Faults::NONE,
            tally: Tally::default(),
            store: Store::default(),
            flights: BinaryHeap::new(),
            number: 0,
            tape: None,
            clock: TscClock::new(),
        }
    }

    fn run(&mut self, questions: &Receiver<Question>) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let mut received = 0;
            for from in End::BOTH {
                for _ in 0..BURST {
                    let tap = &self.taps[from as usize];
                    let Some(len) = tap.receive(&mut buffer).expect("a packet socket") else {
                        break;
                    };
                    received += 1;
                    self.carry(from, &mut buffer[..len]);
                }
            }
            self.deliver_what_is_due();
            match questions.try_recv() {
                Ok(question) => question(self),
                Err(TryRecvError::Empty) if received == 0 => self.wait(),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Sleeps until a frame comes or is due; not long, as questions make no sound.
    fn wait(&self) {
        let next = self.flights.peek().map_or(u64::MAX, |Reverse(flight)| flight.due);
        let nanos = next.saturating_sub(self.clock.now().as_nanos()).min(1_000_000);
        let timeout = Timespec { tv_sec: 0, tv_nsec: nanos as _ };
        let mut fds = self.taps.each_ref().map(|tap| PollFd::new(tap, PollFlags::IN));
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }

    fn deliver_what_is_due(&mut self) {
        let now = self.clock.now().as_nanos();
        while self.flights.peek().is_some_and(|Reverse(flight)| flight.due <= now) {
            let Reverse(flight) = self.flights.pop().expect("peeked just now");
            self.deliver(flight.toward, &flight.frame);
        }
    }

    fn deliver(&mut self, toward: End, frame: &[u8]) {
        let sent = self.taps[toward as usize].send(frame).expect("a packet socket");
        self.tally.no_room += u64::from(!sent);
    }

    fn deliver_after(&mut self, delay: Duration, toward: End, frame: Vec<u8>) {
        let due = self.clock.now().as_nanos() + delay.as_nanos() as u64;
        self.number += 1;
        self.flights.push(Reverse(Flight { due, number: self.number, toward, frame }));
    }

    /// Takes a frame that the host at `from` has sent.
    fn carry(&mut self, from: End, frame: &mut [u8]) {
        complete_checksum(frame);
        let toward = from.other();
        if payload(frame, self.port).is_none() {
            self.tally.passed += 1;
            self.deliver(toward, frame);
            return;
        }
        self.tally.seen += 1;
        let captured = Captured { toward, frame: frame.to_vec() };
        if let Some(tape) = &mut self.tape {
            tape.len += frame.len();
            if tape.len <= TAPE_MAX {
                tape.frames.push(captured.clone());
            }
        }
        self.store.keep(captured, self.port, &mut self.prng);
        if self.faults.any(&Fault::ALL) {
            self.carry_badly(toward, frame);
        } else {
            self.deliver(toward, frame);
        }
    }

    fn carry_badly(&mut self, toward: End, frame: &mut [u8]) {
        let faults = self.faults;
        let hit = Fault::ALL.map(|fault| self.prng.chance(faults.chance(fault)));
        let hit = |fault: Fault| hit[fault as usize];
        let [delay, later] = [(); 2].map(|()| self.below(faults.delay_max));
        let hold = faults.hold_max / 8 + self.below(faults.hold_max / 8 * 7);

        if hit(Fault::Refuse) {
            let forged = self.forger.refuse(&self.store);
            self.deliver_extra(Fault::Refuse, Duration::ZERO, forged);
        }
        if hit(Fault::Forge) {
            let forged = self.forger.forge(&self.store);
            self.deliver_extra(Fault::Forge, later, forged);
        }
        if hit(Fault::Replay) {
            let replayed = self.store.any(&mut self.prng).cloned();
            self.deliver_extra(Fault::Replay, later, replayed);
        }
        if hit(Fault::Reflect) {
            let reflected = self.reflected();
            self.deliver_extra(Fault::Reflect, later, reflected);
        }
        if hit(Fault::Drop) {
            self.tally.count(Fault::Drop);
            return;
        }
        if hit(Fault::Duplicate) {
            self.tally.count(Fault::Duplicate);
            self.deliver_after(later, toward, frame.to_vec());
        }
        let mut repacked;
        let mut frame = frame;
        if hit(Fault::Repack) {
            self.tally.count(Fault::Repack);
            repacked = self.repacked(frame);
            frame = &mut repacked[..];
        }
        if hit(Fault::Corrupt) {
            self.tally.count(Fault::Corrupt);
            let len = self.corrupt(frame);
            frame = &mut frame[..len];
        }
        if hit(Fault::Hold) {
            self.tally.count(Fault::Hold);
            self.deliver_after(hold, toward, frame.to_vec());
        } else if hit(Fault::Delay) {
            self.tally.count(Fault::Delay);
            self.deliver_after(delay, toward, frame.to_vec());
        } else {
            self.deliver(toward, frame);
        }
    }

    fn below(&mut self, max: Duration) -> Duration {
        Duration::from_nanos(self.prng.below(max.as_nanos() as u64 + 1))
    }

    /// A frame beside those that hosts have sent, if one could be made.
    fn deliver_extra(&mut self, fault: Fault, delay: Duration, extra: Option<Captured>) {
        if let Some(Captured { toward, frame }) = extra {
            self.tally.count(fault);
            self.deliver_after(delay, toward, frame);
        }
    }

    /// A kept frame on its way back to its sender: as it was, or as if the other host had sent it.
    fn reflected(&mut self) -> Option<Captured> {
        let as_it_was = self.prng.below(2) == 0;
        let Captured { toward, frame } = self.store.any(&mut self.prng)?;
        let frame = if as_it_was { frame.clone() } else { turned(frame, self.port) };
        Some(Captured { toward: toward.other(), frame })
    }

    /// Another packet in the place of one.
    fn repacked(&mut self, frame: &[u8]) -> Vec<u8> {
        let octets = payload(frame, self.port).expect("looked at already");
        let changed = self.forger.change(&frame[octets], &self.store);
        around(frame, self.port, SourcePort(self.prng.next() as u16), &changed)
    }

    /// Changes some bits of a frame, and returns how much of it is left.
    fn corrupt(&mut self, frame: &mut [u8]) -> usize {
        let payload = payload(frame, self.port).expect("looked at already");
        // Not the Ethernet header: that would be no frame of this wire.
        let headers = 12..payload.start;
        let what = self.prng.below(10);
        // A packet may have nothing in it.
        let place = if what == 0 || payload.is_empty() { headers } else { payload };
        for _ in 0..self.prng.between(1, 8) {
            let at = place.start + self.prng.below(place.len() as u64) as usize;
            frame[at] ^= 1 << self.prng.below(8);
        }
        let cut = self.prng.below(place.len() as u64) as usize;
        if what == 9 { frame.len() - cut } else { frame.len() }
    }

    /// Every kept frame once more, some 50,000 a second: a burst would not fit into the receiver's
    /// ring.
    fn replay_all(&mut self, both: bool) -> usize {
        let mut all: Vec<Captured> = self.store.ever().to_vec();
        if both {
            let back = all.clone().into_iter().flat_map(|Captured { toward, frame }| {
                let turned = turned(&frame, self.port);
                [frame, turned].map(|frame| Captured { toward: toward.other(), frame })
            });
            all.extend(back);
        }
        let count = all.len();
        for (n, Captured { toward, frame }) in all.into_iter().enumerate() {
            self.deliver_after(Duration::from_micros(20 * n as u64), toward, frame);
        }
        count
    }
}

/// The frame as if its receiver had sent it to its sender.
fn turned(frame: &[u8], port: u16) -> Vec<u8> {
    let octets = payload(frame, port).expect("only frames of 1RMA are kept");
    back(frame, port, SourcePort::FIRST, &frame[octets])
}
