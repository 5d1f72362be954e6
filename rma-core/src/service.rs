//! The service of an engine: the seam between the loop and a protocol (not in the paper, whose
//! engine is hardware and serves 1RMA alone).
//!
//! [`Engine`](crate::engine::Engine) moves bursts of frames and reads the clock. A [`Service`] says
//! what they mean: it takes the commands of its applications, handles the frames that come for its
//! ports, writes those that go, and gives completions back. How its commands look, and on which
//! rings they come, is its own business. [`OneRma`](crate::one_rma::OneRma) is one service;
//! [`Both`] is two on one engine.
//!
//! Everything is called by type, so an engine is compiled for its services: nothing is looked up
//! for a frame, and an engine with one service does not know that there could be two.

mod both;

use crate::{
    addr::LocalAddresses,
    backend::{RxFrame, TxFrame},
    crypto::EngineId,
    error::DropReason,
    packet::Tail,
    port::Port,
    quantum::Quantum,
    seat::Word,
    time::{Clock, Instant},
};
pub use both::Both;
use rma_shm::Line;

/// A protocol that an engine serves.
///
/// The methods stand in the order in which a turn calls them. `now` is when the turn began, and
/// never goes backwards. Each does bounded work, and none allocates, blocks, or panics on what
/// applications and peers send.
pub trait Service {
    /// The addresses of the host. Frames to one of them never reach a device. All services of an
    /// engine are of one host and have the same.
    fn addresses(&self) -> &LocalAddresses;

    /// Whether frames to `port` are for this service. Asked where there are several: a service that
    /// is alone gets whatever comes to the ports that its backend was opened with.
    fn serves(&self, port: Port) -> bool;

    /// How long the frame is that `octets` begin with, which came to `port`, whatever is behind it
    /// in its packet.
    ///
    /// # Errors
    /// The reason why there is no such frame. Then neither it nor what is behind it can be handled.
    fn frame_len(&self, port: Port, octets: &[u8]) -> Result<usize, DropReason>;

    /// A packet that came to `port` has been taken apart into so many frames. To be counted; an end
    /// of it that is no frame counts as one.
    fn note_packet(&mut self, port: Port, frames: usize);

    /// The end of a packet that came to `port` is dropped. To be counted.
    fn drop_tail(&mut self, port: Port, tail: Tail);

    /// The engine of the host that a frame is for, by what it claims: asked where there are
    /// several. `None`: whoever has received it.
    fn owner_of(&self, frame: &RxFrame<'_>) -> Option<EngineId>;

    /// Takes the new keys that other engines of the host have put on their way here. Called after
    /// frames were fetched and before any of them is handled.
    fn take_keys(&mut self);

    /// The frames that follow, up to the next first one of a packet, are of a packet whose notice
    /// to a stranger may be another engine's to send (P10).
    fn note_paid(&mut self);

    /// The next word for another engine of the host, as of the last frames.
    fn poll_word(&mut self) -> Option<Word>;

    /// Takes a word of another engine of the host.
    fn handle_word(&mut self, line: &Line);

    /// Takes received frames, of one service each time. `clock` is for what must be known more
    /// exactly than `now` tells (P2).
    fn handle_frames(&mut self, now: Instant, clock: &impl Clock, frames: &mut [RxFrame<'_>]);

    /// Takes the commands that applications have issued, a bounded number. Returns how many.
    fn take_commands(&mut self, now: Instant) -> usize;

    /// Expires whatever is due. Early or repeated calls do nothing.
    fn handle_timeout(&mut self, now: Instant);

    /// Gives applications the completions that there are. Returns how many.
    fn complete(&mut self) -> usize;

    /// When this service last had to do with an op of the latency class. An engine keeps its turns
    /// short where that was lately.
    fn latency_class_seen_at(&self) -> Option<Instant>;

    /// About how many frames [`Service::poll_transmits`] has, which is how many buffers to offer
    /// it. 0 only if it has none, or none that it can send now.
    fn frames_waiting(&self) -> usize;

    /// Whether [`Service::frames_waiting`] is not 0, for whoever asks for no more than that:
    /// several times a turn.
    fn has_frames(&self) -> bool {
        self.frames_waiting() > 0
    }

    /// Whether all frames that wait can wait a little, to be sent with more.
    fn gathers(&self, now: Instant) -> bool;

    /// Writes frames into `frames`, one into each, as long as `quantum` admits them, and returns
    /// how many. A frame tells its port and what it weighs.
    fn poll_transmits(
        &mut self,
        now: Instant,
        frames: &mut [TxFrame<'_>],
        quantum: &mut Quantum,
    ) -> usize;

    /// Whether [`Service::poll_transmits`] has a frame. An engine must not sleep over one that its
    /// device had no room for.
    fn wants_transmit(&self) -> bool;

    /// Wakes the applications that were given something in this turn and may sleep. Last in a turn,
    /// as a system call takes its time and frames should not wait for it.
    fn wake_sleepers(&mut self);

    /// Says to those applications that do not look at the host's own doorbell, as they are in other
    /// processes, that the engine is going to sleep. The thread that is about to sleep says it,
    /// before it sets the host's doorbell and before it asks [`Service::is_idle`]. A service that
    /// has no such applications says it to nobody.
    fn announce_sleep(&self);

    /// Tells them that the engine no longer sleeps.
    fn awake(&self);

    /// Whether no application has issued a command that could be taken. Looks again at the memory
    /// of the applications: the thread that is about to sleep asks.
    fn is_idle(&self) -> bool;

    /// The earliest instant at which [`Service::handle_timeout`] has work. May change after any
    /// other call.
    fn poll_timeout(&self) -> Option<Instant>;
}
