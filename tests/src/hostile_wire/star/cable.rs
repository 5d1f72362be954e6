//! The wire between both hosts, without a thread: whoever holds it moves the frames.

use rma_core::port::{Port, SourcePort};
use rma_sim::prng::Prng;
use rma_star::config::{STATEFUL_PORT, STATELESS_PORT};

use super::super::{
    faults::{Fault, Faults},
    frame::{around, complete_checksum, payload},
    lab::{End, Namespaces, WIRE_INTERFACES},
    tap::Tap,
};

/// A packet of StaR.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) toward: End,
    pub(super) port: Port,
    /// The Ethernet frame.
    pub(super) frame: Vec<u8>,
    /// The packet in it.
    pub(super) octets: Vec<u8>,
}

impl Packet {
    /// The frames of StaR in it.
    pub(super) fn frames(&self) -> Vec<&[u8]> {
        let (mut frames, mut rest) = (Vec::new(), &self.octets[..]);
        while let Ok(len) = rma_star::wire::frame_len(rest) {
            let (frame, behind) = rest.split_at(len);
            frames.push(frame);
            rest = behind;
        }
        frames
    }

    /// The same way, another payload.
    pub(super) fn with(&self, octets: Vec<u8>) -> Self {
        let frame = around(&self.frame, self.port.0, SourcePort::FIRST, &octets);
        Self { frame, octets, ..*self }
    }

    /// The same to another port.
    pub(super) fn to_port(&self, port: Port) -> Self {
        const UDP_LEN: usize = 8;
        let mut packet = Self { port, ..self.clone() };
        let udp = packet.frame.len() - self.octets.len() - UDP_LEN;
        packet.frame[udp + 2..udp + 4].copy_from_slice(&port.0.to_be_bytes());
        complete_checksum(&mut packet.frame);
        packet
    }
}

/// The wire, and what came by.
#[derive(Debug)]
pub(super) struct Cable {
    taps: [Tap; 2],
    /// The packets that hosts have sent, in order, since it was last emptied.
    pub(super) tape: Vec<Packet>,
    /// How many packets of the tape may come again behind each one that comes by: all of them each
    /// time, until there have been so many.
    pub(super) repeats_left: u64,
    /// Packets that hosts have sent.
    pub(super) carried: u64,
    /// Packets that came again.
    pub(super) repeated: u64,
    /// The faults that befall packets by chance: [`Fault::Drop`], [`Fault::Duplicate`] and
    /// [`Fault::Hold`], which is behind some of the next ones.
    pub(super) faults: Faults,
    prng: Prng,
    held: Vec<Packet>,
    /// Packets that were lost.
    pub(super) lost: u64,
}

impl Cable {
    pub(super) fn new(namespaces: &Namespaces) -> Self {
        let _inside = namespaces.middle().enter().expect("the middle namespace");
        let taps = WIRE_INTERFACES.map(|it| Tap::open(it).expect("a packet socket"));
        Self {
            taps,
            tape: Vec::new(),
            repeats_left: 0,
            carried: 0,
            repeated: 0,
            faults: Faults::NONE,
            prng: Prng::new(1),
            held: Vec::new(),
            lost: 0,
        }
    }

    /// Takes over all that hosts have sent.
    pub(super) fn pump(&mut self) {
        let mut buffer = [0; 4096];
        for from in End::BOTH {
            while let Some(len) = self.taps[from as usize].receive(&mut buffer).expect("a socket") {
                let frame = &mut buffer[..len];
                complete_checksum(frame);
                let toward = from.other();
                let packet = [STATELESS_PORT, STATEFUL_PORT].into_iter().find_map(|port| {
                    let octets = frame[payload(frame, port.0)?].to_vec();
                    Some(Packet { toward, port, frame: frame.to_vec(), octets })
                });
                match packet {
                    Some(packet) => self.carry(packet),
                    None => self.send(toward, frame),
                }
                let repeats = self.repeats_left.min(self.tape.len() as u64);
                self.tape[..repeats as usize].iter().for_each(|packet| self.inject(packet));
                self.repeats_left -= repeats;
                self.repeated += repeats;
            }
        }
    }

    /// Takes over a packet that a host has sent, unless a fault happens to it.
    fn carry(&mut self, packet: Packet) {
        self.carried += 1;
        let [is_lost, is_doubled, is_held] = [Fault::Drop, Fault::Duplicate, Fault::Hold]
            .map(|fault| self.prng.chance(self.faults.chance(fault)));
        if is_held {
            self.held.push(packet.clone());
        } else if is_lost {
            self.lost += 1;
        } else {
            self.inject(&packet);
        }
        if is_doubled {
            self.inject(&packet);
            self.repeated += 1;
        }
        if self.prng.below(4) == 0 && !is_held {
            self.held.pop().iter().for_each(|late| self.inject(late));
        }
        self.tape.push(packet);
    }

    /// Delivers a packet, whoever made it.
    pub(super) fn inject(&self, packet: &Packet) {
        self.send(packet.toward, &packet.frame);
    }

    fn send(&self, toward: End, frame: &[u8]) {
        while !self.taps[toward as usize].send(frame).expect("a packet socket") {
            std::thread::yield_now();
        }
    }
}
