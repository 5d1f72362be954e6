//! One sender and those who read its memory, on hosts in a test's hands: what each of them gets is
//! what was sent, in order.

use core::time::Duration;

use super::hand::{Hosts, Node};
use crate::{
    ReceiveError, SendError, SendHandle,
    readers::{Reader, Standing},
    receiver::Receiver,
    sender::Sender,
};

/// For how long readers count in these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(64);

/// A sender that any number read.
pub(crate) trait Read {
    fn as_sender(&mut self) -> &mut dyn Sender;

    fn readers(&self) -> Vec<Reader>;
}

/// A sender, and receivers with what they have got.
pub(crate) struct Audience<S> {
    pub(crate) hosts: Hosts,
    pub(crate) from: Node,
    pub(crate) sender: S,
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) readers: Vec<End>,
}

pub(crate) struct End {
    pub(crate) node: Node,
    receiver: Box<dyn Receiver>,
    pub(crate) got: usize,
    pub(crate) ended: Option<ReceiveError>,
}

impl<S: Read> Audience<S> {
    /// A sender on a host, and nobody yet.
    pub(crate) const fn new(hosts: Hosts, from: Node, sender: S) -> Self {
        Self { hosts, from, sender, sent: Vec::new(), readers: Vec::new() }
    }

    /// One more, who gets what is sent from now on.
    pub(crate) fn add(&mut self, node: Node, receiver: Box<dyn Receiver>) {
        self.readers.push(End { node, receiver, got: self.sent.len(), ended: None });
    }

    /// The next message.
    pub(crate) fn message(&self, len: usize) -> Vec<u8> {
        let number = self.sent.len();
        (0..len).map(|at| (number * 151 + at * 7 + (at >> 3) * number) as u8).collect()
    }

    pub(crate) fn send(&mut self, len: usize) -> Result<SendHandle, SendError> {
        let bytes = self.message(len);
        let sent = self.sender.as_sender().send(&mut self.from.link, self.hosts.now, &bytes);
        if sent.is_ok() {
            self.sent.push(bytes);
        }
        sent
    }

    /// The sender looks after its readers.
    pub(crate) fn poll_sender(&mut self) {
        self.hosts.turn(&mut self.from);
        self.sender.as_sender().poll(&mut self.from.link, self.hosts.now).unwrap();
        self.from.take(self.hosts.now);
    }

    /// A reader looks, and takes what it can; what it gets is what comes next. How much it was.
    pub(crate) fn poll_reader(&mut self, index: usize) -> usize {
        let end = &mut self.readers[index];
        self.hosts.turn(&mut end.node);
        let polled = end.receiver.poll(&mut end.node.link, self.hosts.now);
        let before = end.got;
        loop {
            match end.receiver.claim() {
                Ok(Some(claim)) => {
                    let mut bytes = vec![0; claim.len()];
                    end.receiver.read(&claim, 0, &mut bytes);
                    assert_eq!(bytes, self.sent[end.got], "message {} of reader {index}", end.got);
                    end.got += 1;
                    end.receiver.free(claim);
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(end.ended.is_none_or(|it| it == error), "it stays so");
                    end.ended = Some(error);
                    break;
                }
            }
        }
        if polled.is_err() {
            assert_eq!(polled.err(), end.ended, "both say why");
        } else {
            // The receiver repeats its word with the next claim.
            let _ = end.receiver.poll(&mut end.node.link, self.hosts.now);
        }
        end.node.take(self.hosts.now);
        end.got - before
    }

    /// Everybody does what there is to do, again and again.
    pub(crate) fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.poll_sender();
            self.hosts.serve_all(&mut self.from);
            for index in 0..self.readers.len() {
                self.poll_reader(index);
                self.hosts.serve_all(&mut self.readers[index].node);
            }
        }
    }

    /// All that may happen, in any order: sends, looks, ops in any order, and time that goes by.
    /// Then each reader has got all, or is told that it no longer counts.
    pub(crate) fn chaos(&mut self, len_max: u64, seed: u64) {
        let mut draw = drawing(seed);
        let readers = self.readers.len() as u64;
        // Some runs are hasty, some are slow.
        let slow = draw(3);
        for _ in 0..1500 {
            match draw(12) {
                0..3 => drop(self.send(1 + draw(len_max) as usize)),
                3..5 => self.poll_sender(),
                5 => drop(self.hosts.serve(&mut self.from)),
                6..11 => {
                    let index = draw(readers) as usize;
                    if draw(2) == 0 {
                        self.poll_reader(index);
                    } else {
                        let node = &mut self.readers[index].node;
                        if !node.engine.taken.is_empty() {
                            let command = node
                                .engine
                                .taken
                                .remove(draw(node.engine.taken.len() as u64) as usize);
                            self.hosts.carry_out(node, &command);
                        }
                    }
                }
                _ => {
                    let jumps = [TIMEOUT / 1000, TIMEOUT / 50, TIMEOUT / 3];
                    self.hosts.now = self.hosts.now + jumps[slow.min(draw(3)) as usize];
                }
            }
        }
        // Windows have become small meanwhile.
        for _ in 0..200 {
            self.settle(8);
            let is_over = |end: &End| end.ended.is_some() || end.got == self.sent.len();
            if self.readers.iter().all(is_over) {
                break;
            }
        }
        let readers = self.sender.readers();
        for (index, end) in self.readers.iter().enumerate() {
            match end.ended {
                None => assert_eq!(end.got, self.sent.len(), "reader {index} has got all"),
                Some(ReceiveError::Ejected { .. }) => {
                    assert_ne!(readers[index].standing, Standing::Counts, "reader {index} counts");
                }
                Some(error) => panic!("reader {index}: {error}"),
            }
        }
    }

    /// The first reader's ops find words of `draw`'s in the sender's memory: it says that they
    /// cannot be, or finds messages that can. Whether it goes on.
    pub(crate) fn garbage(
        &mut self,
        len_max: usize,
        word: &mut dyn FnMut(u64) -> [u64; 2],
    ) -> bool {
        let ids: Vec<_> =
            self.readers[0].node.engine.taken.iter().map(|it| it.remote_region).collect();
        for id in ids {
            let region = self.hosts.region(id).clone();
            let [at, word] = word(region.len() / 8);
            region.store(at * 8, word.to_le()).unwrap();
        }
        let end = &mut self.readers[0];
        self.hosts.turn(&mut end.node);
        let polled = end.receiver.poll(&mut end.node.link, self.hosts.now);
        while let Ok(Some(claim)) = end.receiver.claim() {
            assert!((1..=len_max).contains(&claim.len()));
            let mut bytes = vec![0; claim.len()];
            assert_eq!(end.receiver.read(&claim, 0, &mut bytes), claim.len());
            end.receiver.free(claim);
        }
        end.node.take(self.hosts.now);
        self.hosts.serve_all(&mut end.node);
        if let Err(error) = polled {
            let is_known =
                matches!(error, ReceiveError::Malformed(_) | ReceiveError::Ejected { .. });
            assert!(is_known, "{error}");
        }
        polled.is_ok()
    }
}

/// Numbers below what is asked for, that `seed` says all of.
pub(crate) fn drawing(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}
