//! Two services on one engine, each with its own ports, portals and timers; or one where there may
//! be two.
//!
//! Frames go to the service that serves their port. In everything else the two take turns or are
//! asked one after the other, so that neither keeps the other from being served. More than two are
//! `Both<Both<A, B>, C>`. Where there is no second, each call costs one branch more than the first
//! alone.

use crate::{
    addr::LocalAddresses,
    backend::{RxFrame, TxFrame},
    crypto::EngineId,
    error::DropReason,
    packet::Tail,
    port::Port,
    quantum::Quantum,
    seat::Word,
    service::Service,
    time::{Clock, Instant},
};
use rma_shm::Line;

/// Two services on one engine.
#[derive(Debug)]
pub struct Both<A, B> {
    /// One of them. Its addresses are the engine's.
    pub first: A,
    /// The other, if there is one. It gets the frames that are not for the first.
    pub second: Option<B>,
    /// The service that writes its frames first, the next time that both have some.
    turn: Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    First,
    Second,
}

impl Turn {
    const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

impl<A: Service, B: Service> Both<A, B> {
    /// These two.
    pub const fn new(first: A, second: B) -> Self {
        Self::maybe(first, Some(second))
    }

    /// The first, and the second if there is one.
    pub const fn maybe(first: A, second: Option<B>) -> Self {
        Self { first, second, turn: Turn::First }
    }

    /// The second, if there is one and a frame to `port` is for it.
    #[inline]
    fn second_at(&mut self, port: Port) -> Option<&mut B> {
        self.second.as_mut().filter(|_| !self.first.serves(port))
    }

    /// Puts the frames of the first service before those of the second, and says how many they are.
    /// The order among those of one service stays.
    fn sort(&self, frames: &mut [RxFrame<'_>]) -> usize {
        let mut firsts = 0;
        for at in 0..frames.len() {
            if self.first.serves(frames[at].port) {
                frames[firsts..=at].rotate_right(1);
                firsts += 1;
            }
        }
        firsts
    }
}

impl<A: Service, B: Service> Service for Both<A, B> {
    fn addresses(&self) -> &LocalAddresses {
        self.first.addresses()
    }

    fn serves(&self, port: Port) -> bool {
        self.first.serves(port) || self.second.as_ref().is_some_and(|it| it.serves(port))
    }

    fn frame_len(&self, port: Port, octets: &[u8]) -> Result<usize, DropReason> {
        match &self.second {
            Some(second) if !self.first.serves(port) => second.frame_len(port, octets),
            _ => self.first.frame_len(port, octets),
        }
    }

    fn note_packet(&mut self, port: Port, frames: usize) {
        match self.second_at(port) {
            Some(second) => second.note_packet(port, frames),
            None => self.first.note_packet(port, frames),
        }
    }

    fn drop_tail(&mut self, port: Port, tail: Tail) {
        match self.second_at(port) {
            Some(second) => second.drop_tail(port, tail),
            None => self.first.drop_tail(port, tail),
        }
    }

    fn owner_of(&self, frame: &RxFrame<'_>) -> Option<EngineId> {
        match &self.second {
            Some(second) if !self.first.serves(frame.port) => second.owner_of(frame),
            _ => self.first.owner_of(frame),
        }
    }

    fn take_keys(&mut self) {
        self.first.take_keys();
        self.second.iter_mut().for_each(B::take_keys);
    }

    fn note_paid(&mut self) {
        self.first.note_paid();
        self.second.iter_mut().for_each(B::note_paid);
    }

    /// Words are the first service's alone.
    fn poll_word(&mut self) -> Option<Word> {
        self.first.poll_word()
    }

    fn handle_word(&mut self, line: &Line) {
        self.first.handle_word(line);
    }

    fn handle_frames(&mut self, now: Instant, clock: &impl Clock, frames: &mut [RxFrame<'_>]) {
        if self.second.is_none() {
            return self.first.handle_frames(now, clock, frames);
        }
        let firsts = self.sort(frames);
        let (firsts, seconds) = frames.split_at_mut(firsts);
        if !firsts.is_empty() {
            self.first.handle_frames(now, clock, firsts);
        }
        if let Some(second) = &mut self.second
            && !seconds.is_empty()
        {
            second.handle_frames(now, clock, seconds);
        }
    }

    fn take_commands(&mut self, now: Instant) -> usize {
        self.first.take_commands(now) + self.second.as_mut().map_or(0, |it| it.take_commands(now))
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.first.handle_timeout(now);
        self.second.iter_mut().for_each(|it| it.handle_timeout(now));
    }

    fn complete(&mut self) -> usize {
        self.first.complete() + self.second.as_mut().map_or(0, B::complete)
    }

    fn latency_class_seen_at(&self) -> Option<Instant> {
        let of_second = self.second.as_ref().and_then(B::latency_class_seen_at);
        self.first.latency_class_seen_at().max(of_second)
    }

    fn frames_waiting(&self) -> usize {
        self.first.frames_waiting() + self.second.as_ref().map_or(0, B::frames_waiting)
    }

    fn has_frames(&self) -> bool {
        self.first.has_frames() || self.second.as_ref().is_some_and(B::has_frames)
    }

    /// Only if nobody has a frame that cannot wait.
    fn gathers(&self, now: Instant) -> bool {
        (!self.first.has_frames() || self.first.gathers(now))
            && self.second.as_ref().is_none_or(|it| !it.has_frames() || it.gathers(now))
    }

    /// While both have frames, the one whose turn it is has half of the buffers and what the other
    /// leaves; the next time it is the other's turn. So neither waits for more than one call,
    /// whatever the other sends.
    fn poll_transmits(
        &mut self,
        now: Instant,
        frames: &mut [TxFrame<'_>],
        quantum: &mut Quantum,
    ) -> usize {
        let Self { first, second, turn } = self;
        let Some(second) = second.as_mut().filter(|it| it.has_frames()) else {
            return first.poll_transmits(now, frames, quantum);
        };
        if !first.has_frames() {
            return second.poll_transmits(now, frames, quantum);
        }
        let was = *turn;
        let (written, goes_on) = match was {
            Turn::First => share(now, frames, quantum, first, second),
            Turn::Second => share(now, frames, quantum, second, first),
        };
        if !goes_on {
            *turn = was.other();
        }
        written
    }

    fn wants_transmit(&self) -> bool {
        self.first.wants_transmit() || self.second.as_ref().is_some_and(B::wants_transmit)
    }

    fn wake_sleepers(&mut self) {
        self.first.wake_sleepers();
        self.second.iter_mut().for_each(B::wake_sleepers);
    }

    fn announce_sleep(&self) {
        self.first.announce_sleep();
        self.second.iter().for_each(B::announce_sleep);
    }

    fn awake(&self) {
        self.first.awake();
        self.second.iter().for_each(B::awake);
    }

    fn is_idle(&self) -> bool {
        self.first.is_idle() && self.second.as_ref().is_none_or(B::is_idle)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let of_second = self.second.as_ref().and_then(B::poll_timeout);
        self.first.poll_timeout().into_iter().chain(of_second).min()
    }
}

/// Has the frames of two services written: half of them by the one whose turn it is, then as many
/// as the other has, and the rest by the one whose turn it is again. Returns how many, and whether
/// it stays the turn of the same: it has begun an op, and the rest of it must come next.
fn share(
    now: Instant,
    frames: &mut [TxFrame<'_>],
    quantum: &mut Quantum,
    turn: &mut impl Service,
    other: &mut impl Service,
) -> (usize, bool) {
    let half = frames.len().div_ceil(2);
    let mut written = turn.poll_transmits(now, &mut frames[..half], quantum);
    if !quantum.admits() || quantum.expects_rest() {
        return (written, quantum.expects_rest());
    }
    written += other.poll_transmits(now, &mut frames[written..], quantum);
    if written == frames.len() || !quantum.admits() {
        return (written, false);
    }
    written += turn.poll_transmits(now, &mut frames[written..], quantum);
    (written, quantum.expects_rest())
}
