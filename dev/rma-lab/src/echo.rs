//! An echo: about the smallest service that has a port, commands and timers of its own.

#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

use core::time::Duration;
use std::collections::VecDeque;

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    backend::{RxFrame, Transmit, TxFrame},
    crypto::EngineId,
    error::DropReason,
    op::ClassOfService,
    packet::Tail,
    port::Port,
    quantum::Quantum,
    seat::Word,
    service::Service,
    time::{Clock, Instant},
};
use rma_shm::Line;

/// The first octet of a frame of this service.
const CALL: u8 = 1;
const ANSWER: u8 = 2;

/// How long a call waits for its answer.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// A call that an application makes.
#[derive(Debug)]
struct Call {
    to: HostAddr,
    number: u8,
    /// Octets of the frame.
    len: usize,
}

/// Sends back what others call, and tells its application which calls were answered.
#[derive(Debug)]
pub struct Echo {
    addresses: LocalAddresses,
    port: Port,
    /// The calls of the application.
    calls: VecDeque<Call>,
    /// Calls without an answer, the oldest first, and when their time is over.
    open: VecDeque<(u8, Instant)>,
    /// The frames to send.
    waiting: VecDeque<(HostAddr, Vec<u8>)>,
    /// Calls that are over, and whether they were answered.
    ended: Vec<(u8, bool)>,
    /// The application's view of these.
    pub told: Vec<(u8, bool)>,
}

impl Echo {
    /// An echo on this port.
    #[must_use]
    pub fn new(addresses: LocalAddresses, port: Port) -> Self {
        Self {
            addresses,
            port,
            calls: VecDeque::new(),
            open: VecDeque::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Leaves a call of `len` octets to another host.
    pub fn call(&mut self, to: HostAddr, number: u8, len: usize) {
        self.calls.push_back(Call { to, number, len });
    }
}

impl Service for Echo {
    fn owner_of(&self, _: &RxFrame<'_>) -> Option<EngineId> {
        None
    }

    fn take_keys(&mut self) {}

    fn note_paid(&mut self) {}

    fn poll_word(&mut self) -> Option<Word> {
        None
    }

    fn handle_word(&mut self, _: &Line) {}

    fn addresses(&self) -> &LocalAddresses {
        &self.addresses
    }

    fn serves(&self, port: Port) -> bool {
        port == self.port
    }

    /// Octets 2 and 3 say it.
    fn frame_len(&self, _: Port, octets: &[u8]) -> Result<usize, DropReason> {
        let len: [u8; 2] =
            *octets.get(2..).and_then(<[u8]>::first_chunk).ok_or(DropReason::Length)?;
        Ok(u16::from_be_bytes(len).into())
    }

    fn note_packet(&mut self, port: Port, _: usize) {
        assert_eq!(port, self.port, "packets of one service");
    }

    fn drop_tail(&mut self, _: Port, tail: Tail) {
        panic!("every frame has come whole: {tail:?}");
    }

    fn handle_frames(&mut self, _: Instant, _: &impl Clock, frames: &mut [RxFrame<'_>]) {
        for frame in frames {
            assert_eq!(frame.port, self.port, "frames of one service at a time");
            match *frame.bytes {
                [CALL, ref rest @ ..] => {
                    let answer = [&[ANSWER][..], rest].concat();
                    self.waiting.push_back((frame.source, answer));
                }
                [ANSWER, number, ..] => {
                    let at = self.open.iter().position(|&(open, _)| open == number);
                    if at.and_then(|at| self.open.remove(at)).is_some() {
                        self.ended.push((number, true));
                    }
                }
                _ => panic!("a frame of another service: {:x?}", frame.bytes),
            }
        }
    }

    fn take_commands(&mut self, now: Instant) -> usize {
        let taken = self.calls.len();
        for Call { to, number, len } in self.calls.drain(..) {
            let mut frame = vec![number; len];
            frame[0] = CALL;
            frame[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            self.open.push_back((number, now + PATIENCE));
            self.waiting.push_back((to, frame));
        }
        taken
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((number, _)) = self.open.pop_front_if(|&mut (_, until)| until <= now) {
            self.ended.push((number, false));
        }
    }

    fn complete(&mut self) -> usize {
        let count = self.ended.len();
        self.told.append(&mut self.ended);
        count
    }

    fn latency_class_seen_at(&self) -> Option<Instant> {
        None
    }

    fn frames_waiting(&self) -> usize {
        self.waiting.len()
    }

    fn gathers(&self, _: Instant) -> bool {
        false
    }

    fn poll_transmits(
        &mut self,
        _: Instant,
        frames: &mut [TxFrame<'_>],
        quantum: &mut Quantum,
    ) -> usize {
        let class = ClassOfService::Throughput;
        let mut written = 0;
        for frame in frames {
            let Some((destination, bytes)) = self.waiting.pop_front_if(|_| quantum.admits()) else {
                break;
            };
            frame.bytes[..bytes.len()].copy_from_slice(&bytes);
            let ends = [self.addresses.toward(destination).unwrap(), destination];
            let transmit = Transmit::new(ends, self.port, class, bytes.len());
            frame.transmit = Some(transmit);
            quantum.take(&transmit);
            written += 1;
        }
        written
    }

    fn wants_transmit(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn wake_sleepers(&mut self) {}

    fn announce_sleep(&self) {}

    fn awake(&self) {}

    fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.open.front().map(|&(_, until)| until)
    }
}
