//! Both ends of a ring, over an engine that carries ops out in any order: what the tests of kinds
//! with one op a message share.

use core::time::Duration;

use rma_lab::FakeHosts;

use super::*;
use crate::{
    receiver::Claims,
    sender::{SendError, SendHandle, Sender},
    tests::hosts::{self, BEGIN, Station, Ticks, message},
};

/// Opens an end of a kind.
type Open<E> = fn(&dyn Gate, RingConfig) -> Result<Half<E>, OpenError>;

/// A ring of at most four messages, if they are counted.
pub(super) struct Bench<W: Writes, R: Reads> {
    pub(super) from: Station,
    pub(super) to: Station,
    pub(super) sender: RingSender<W>,
    pub(super) receiver: RingReceiver<R>,
    pub(super) ticks: Ticks,
}

impl<W: Writes, R: Reads> Bench<W, R>
where
    RingSender<W>: Sender,
{
    pub(super) fn new(
        len: u64,
        len_max: u32,
        sender: Open<RingSender<W>>,
        receiver: Open<RingReceiver<R>>,
    ) -> Self {
        let world = FakeHosts::default();
        let (from, to) = (hosts::host(&world, 1), hosts::host(&world, 2));
        let config = RingConfig::with_peer(to.peer).with(|it| {
            (it.len, it.len_max, it.messages) = (RingLen::new(len).unwrap(), len_max, 4);
        });
        let sender = sender(&from, config).unwrap();
        let receiver = receiver(&to, config.with(|it| it.peer = from.peer)).unwrap();
        let (theirs, ours) = (sender.terms().clone(), receiver.terms().clone());
        let (sender, receiver) =
            (sender.connect(&ours).unwrap(), receiver.connect(&theirs).unwrap());
        let (from, to) = (Station::new(from), Station::new(to));
        Self { from, to, sender, receiver, ticks: Ticks(BEGIN) }
    }

    pub(super) fn poll(&mut self) -> Result<(), SendError> {
        let now = self.ticks.next(Duration::from_micros(50));
        self.from.poll(now);
        let polled = self.sender.poll(&mut self.from.link, now);
        self.from.poll(now);
        self.to.poll(now);
        self.receiver.poll(&mut self.to.link, now).unwrap();
        self.to.poll(now);
        polled
    }

    pub(super) fn send(&mut self, message: &[u8]) -> Result<SendHandle, SendError> {
        self.sender.send(&mut self.from.link, self.ticks.0, message)
    }

    /// All that is left to be done.
    pub(super) fn settle(&mut self) {
        for _ in 0..6 {
            self.poll().unwrap();
            self.from.apply_all();
            self.to.apply_all();
        }
    }

    pub(super) fn receive(&mut self) -> Option<Vec<u8>> {
        self.receiver.receive().unwrap().map(|message| message.to_vec())
    }

    /// Messages of these lengths come whole, once and in order, whatever order ops have.
    pub(super) fn all_come(mut self, lens: &[usize], order: &[u8]) {
        let (mut sent, mut got) = (0, 0);
        for &choice in order.iter().cycle().take(4000) {
            if sent < lens.len() && choice & 1 == 0 {
                match self.send(&message(sent as u64, lens[sent])) {
                    Ok(_) => sent += 1,
                    Err(error) => assert_eq!(error, SendError::Full),
                }
            }
            self.poll().unwrap();
            for station in [&mut self.from, &mut self.to] {
                if !station.engine.taken.is_empty() && choice & 2 == 0 {
                    let index = usize::from(choice) % station.engine.taken.len();
                    station.apply(index);
                }
            }
            if choice & 12 == 0
                && let Some(come) = self.receive()
            {
                assert_eq!(come, message(got as u64, lens[got]));
                got += 1;
            }
            if got == lens.len() {
                break;
            }
        }
        assert_eq!(got, lens.len());
    }
}
