//! A device in memory: what was sent stays until somebody looks, what arrives somebody put there.
//!
//! Each frame is a packet here. It loses nothing and orders nothing anew; whoever carries frames
//! from one device to another decides about that. It allocates for each frame: not for measuring.

use std::collections::VecDeque;

use rma_core::{
    backend::{Backend, RxFrame, RxPacket, Transmit, TxFrame},
    time::Instant,
    wire::FRAME_LEN_MAX,
};

/// A frame, and from where to where it goes.
pub type Carried = (Transmit, Vec<u8>);

/// A device without a network.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    /// The packets that the engine receives in its next turns, oldest first.
    pub arriving: VecDeque<Carried>,
    /// The packets that the engine has sent, oldest first.
    pub sent: VecDeque<Carried>,
}

impl Backend for MemoryBackend {
    fn rx_burst(&mut self, max: usize, mut on_packets: impl FnMut(&mut [RxPacket<'_>])) -> usize {
        let burst = max.min(self.arriving.len());
        let mut arrived: Vec<_> = self.arriving.drain(..burst).collect();
        let packets = arrived.iter_mut().map(|(transmit, bytes)| packet(*transmit, bytes));
        on_packets(&mut packets.collect::<Vec<_>>());
        burst
    }

    fn tx_burst(&mut self, max: usize, mut fill: impl FnMut(&mut [TxFrame<'_>]) -> usize) -> usize {
        let mut out = vec![[0; FRAME_LEN_MAX]; max];
        let mut frames: Vec<_> = out.iter_mut().map(|bytes| TxFrame::new(bytes)).collect();
        let filled = fill(&mut frames);
        for TxFrame { bytes, transmit } in &frames[..filled] {
            self.sent.extend(transmit.map(|it| (it, bytes[..it.len].to_vec())));
        }
        filled
    }

    fn flush(&mut self, _: Instant) {}
}

/// The largest frame that goes through an Ethernet of the usual MTU over IPv4.
const REPLY_LEN_MAX: usize = 1472;

/// A frame as a NIC is handed it that arrives as it was sent, alone in its packet.
pub fn received(transmit: Transmit, bytes: &mut [u8]) -> RxFrame<'_> {
    RxFrame::alone(packet(transmit, bytes))
}

/// A packet that arrives as it was sent.
fn packet(transmit: Transmit, bytes: &mut [u8]) -> RxPacket<'_> {
    let Transmit { source, destination, port, source_port, .. } = transmit;
    let reply_len_max = REPLY_LEN_MAX;
    RxPacket { source, destination, port, source_port, reply_len_max, link: None, bytes }
}
