//! The 1RMA NIC: figure 6 of the paper as a state machine without I/O.
//!
//! | the paper's box | here |
//! |---|---|
//! | command slots, CST | `initiator`, with `index_list` |
//! | outgoing op FIFOs, arbiters | `initiator` |
//! | solicitation window | `solicitation_window`: one for this host's reads and for what others write |
//! | RRT | [`RegionTable`] |
//! | incoming op FIFOs | `responder`: `admission`, then `reads` or `mutations` |
//! | encryption-decryption blocks | `security`, over [`crate::seal`] and [`crate::crypto`] |
//!
//! What is not here: congestion control, retry, ordering, transfers of more than 4 KiB. Those are
//! software (Table 1), and this module never imports from them.

mod config;
mod counter_blocks;
mod counters;
mod delays;
mod dispatch;
mod gather;
mod gauges;
mod initiator;
mod key_rings;
mod memory;
mod other_version;
mod parts;
mod previous_keys;
mod region_table;
mod responder;
mod rung_queues;
mod security;
mod shares;
mod solicitation_window;
mod tables;
mod tenant;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rma_shm::Line;

pub use crate::backend::ReceiveLenMax;
pub use crate::tenant::TenantIndex;
pub use config::{ConfigError, NicConfig, NicConfigBuilder, NicPlace, Timing};
pub use counters::NicCounters;
pub use delays::DelayHistogram;
pub use gauges::NicGauges;
pub use key_rings::KeyRings;
pub use memory::TableMemory;
pub use other_version::OtherVersion;
pub use region_table::{RegionEntry, RegionTable, Rekeyed};
pub use shares::Shares;

use crate::{
    addr::Pid,
    backend::{BATCH, RxFrame, Transmit, TxFrame},
    capture::{Fate, Told, Verdicts},
    command::{Command, CommandSlotId, Completion},
    crypto::{AeadProvider, IvCounter, fastest},
    error::{CommandError, DropReason, RegionError},
    op::ClassOfService,
    packet::Tail,
    path_limits::Paths,
    quantum::Quantum,
    region::RegionId,
    time::{Clock, Instant},
    wire,
};
use dispatch::{Batch, Seen};
use initiator::Initiator;
use responder::Responder;
use rung_queues::RungQueues;
use security::Security;
use solicitation_window::SolicitationWindow;
use tables::Tables;

/// A 1RMA NIC as a state machine.
///
/// Methods come in four kinds. `handle_*` takes an event: a command, a frame, the passing of time.
/// `poll_*` gives output: call it until it returns `None`. The rest configure (regions, slots) or
/// look (counters).
///
/// `now` never goes backwards. After any `handle_*` call drain `poll_transmit`, then
/// `poll_completion`, then ask `poll_timeout` when to come back. Every method does bounded work,
/// and none of the `handle_*` and `poll_*` allocates, blocks, or panics on what it is given.
#[derive(Debug)]
pub struct Nic {
    config: NicConfig,
    security: Security,
    regions: RegionTable,
    window: SolicitationWindow,
    events: RungQueues,
    initiator: Initiator,
    responder: Responder,
    counters: Arc<NicCounters>,
    /// The limits of the ways to other hosts. `None`: as much as the device.
    paths: Option<Paths>,
    /// Whether the responder is asked first for the next frame to send.
    responder_first: bool,
    /// Whether the frame that was written last is of an op of the latency class that has more of
    /// them. They are next: all frames of such an op leave in one turn.
    rest_is_next: bool,
    /// When a command of the latency class came last, or an authentic frame of one.
    latency_class_seen_at: Option<Instant>,
    /// The place where the fate of each frame is told, while somebody asks.
    verdicts: Option<Arc<Verdicts>>,
}

impl Nic {
    /// A NIC with the fastest AEAD provider that the processor can run.
    #[must_use]
    pub fn new(config: NicConfig) -> Self {
        Self::with_aead(config, fastest())
    }

    /// A NIC that encrypts with `aead`.
    #[must_use]
    pub fn with_aead(config: NicConfig, aead: &'static dyn AeadProvider) -> Self {
        let counter = IvCounter::new(config.counter_block());
        let mut regions = RegionTable::new(config.settings.regions, aead);
        regions.set_addresses(config.place.addresses);
        Self {
            security: Security::new(aead, config.place.engine, counter),
            regions,
            window: SolicitationWindow::new(config.settings.solicitation_window),
            events: RungQueues::new(config.settings.regions),
            initiator: Initiator::new(&config),
            responder: Responder::new(&config),
            counters: Arc::default(),
            paths: None,
            responder_first: true,
            rest_is_next: false,
            latency_class_seen_at: None,
            verdicts: None,
            config,
        }
    }

    /// The AEAD provider that it encrypts with.
    #[must_use]
    pub const fn aead(&self) -> &'static dyn AeadProvider {
        self.security.aead()
    }

    /// Returns the settings that the NIC was built with.
    #[must_use]
    pub const fn config(&self) -> &NicConfig {
        &self.config
    }

    /// Follows a device whose MTU has changed.
    ///
    /// # Errors
    /// If the shortest response no longer fits. Then nothing changes.
    pub fn set_receive_len_max(&mut self, receive: ReceiveLenMax) -> Result<(), ConfigError> {
        let place = NicPlace { receive_len_max: receive, ..self.config.place };
        self.config = self.config.settings.build(place)?;
        Ok(())
    }

    /// Has `verdicts` told what becomes of each frame from now on.
    pub fn set_verdicts(&mut self, verdicts: Option<Arc<Verdicts>>) {
        self.verdicts = verdicts;
    }

    /// Has what `paths` knows taken into account from now on, and tells it how ops end.
    pub fn set_paths(&mut self, paths: Paths) {
        self.initiator.set_paths(paths.clone());
        self.paths = Some(paths);
    }

    /// The registered region table.
    #[must_use]
    pub const fn regions(&self) -> &RegionTable {
        &self.regions
    }

    /// The registered region table, to register and rekey.
    pub const fn regions_mut(&mut self) -> &mut RegionTable {
        &mut self.regions
    }

    /// Takes a region out of the table, and forgets what became of the ops on it, which nobody can
    /// ask about any longer. Its name will mean nothing until 2^16 later uses of its row.
    ///
    /// # Errors
    /// If no region of that name is registered.
    pub fn deregister(&mut self, region: RegionId) -> Result<Box<RegionEntry>, RegionError> {
        let entry = self.regions.deregister(region)?;
        self.responder.forget(region);
        Ok(entry)
    }

    /// Gives command slots to a process. The PID goes into every request from these slots (§4.2).
    ///
    /// # Panics
    /// If a slot does not exist, or has not completed its last command. The driver sees to that.
    pub fn configure_slots(&mut self, slots: core::ops::Range<u16>, pid: Option<Pid>) {
        self.configure_slots_of(slots, pid, TenantIndex::HOST);
    }

    /// As [`Nic::configure_slots`], of a process of this tenant.
    ///
    /// # Panics
    /// As [`Nic::configure_slots`].
    pub fn configure_slots_of(
        &mut self,
        slots: core::ops::Range<u16>,
        pid: Option<Pid>,
        tenant: TenantIndex,
    ) {
        let Self { initiator, regions, .. } = self;
        for slot in slots.map(CommandSlotId) {
            assert!(initiator.is_free(slot), "slot {slot} is reconfigured while in use");
            initiator.configure_slot(slot, pid, tenant, regions.presence_mut());
        }
    }

    /// Returns the tenant whose process has a slot.
    #[must_use]
    #[inline]
    pub(crate) fn tenant_of(&self, slot: CommandSlotId) -> TenantIndex {
        self.initiator.tenant_of(slot)
    }

    /// How many command slots there are.
    #[must_use]
    pub const fn slot_count(&self) -> usize {
        self.initiator.slot_count()
    }

    /// The numbers of its command slots, among those of its host.
    #[must_use]
    pub const fn slots(&self) -> core::ops::Range<u16> {
        let first = self.config.first_slot();
        first..first + self.slot_count() as u16
    }

    /// Whether all of `slots` are free.
    #[must_use]
    pub fn are_free(&self, slots: core::ops::Range<u16>) -> bool {
        slots.map(CommandSlotId).all(|slot| self.initiator.is_free(slot))
    }

    /// When this NIC last had to do with an op of the latency class: when a command came, or a
    /// frame that belonged to one. An engine that knows it can keep its turns short.
    #[must_use]
    pub const fn latency_class_seen_at(&self) -> Option<Instant> {
        self.latency_class_seen_at
    }

    /// Payload bytes that are solicited, by reads and for the mutations of others, and have not
    /// arrived (P3): never above the window. Those of parked mutations are not in it.
    #[must_use]
    pub const fn window_debited(&self) -> u32 {
        self.window.debited()
    }

    /// Bytes of the mutations of others that are parked: solicited so long ago that their share of
    /// the window was given to others (P13). As much may still come besides
    /// [`Nic::window_debited`].
    #[must_use]
    pub const fn window_parked(&self) -> u32 {
        self.responder.writes().parked_bytes()
    }

    /// Returns the NIC's counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<NicCounters> {
        &self.counters
    }

    /// Takes a command into its slot.
    ///
    /// # Errors
    /// If the slot is nobody's or busy: then there is no op, and nothing else is disturbed. A
    /// command that makes no sense otherwise completes with INVALID_COMMAND.
    pub fn handle_command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        let (initiator, mut tables) = self.initiating();
        let queued = initiator
            .handle_command(now, &command, &mut tables)
            .inspect_err(|_| self.counters.count_refused())?;
        self.note_command(now, queued);
        Ok(())
    }

    /// As [`Nic::handle_command`], of a command as an application wrote it. One that cannot be read
    /// completes with INVALID_COMMAND. Returns whether an op waits now; otherwise it has completed.
    ///
    /// # Errors
    /// As [`Nic::handle_command`].
    #[inline]
    pub fn handle_lines(
        &mut self,
        now: Instant,
        first: &Line,
        second: Option<&Line>,
    ) -> Result<bool, CommandError> {
        let (initiator, mut tables) = self.initiating();
        let queued = initiator
            .handle_lines(now, first, second, &mut tables)
            .inspect_err(|_| self.counters.count_refused())?;
        self.note_command(now, queued);
        Ok(queued.is_some())
    }

    /// A command was taken, and waits with its class of service, or has completed.
    #[inline]
    fn note_command(&mut self, now: Instant, queued: Option<ClassOfService>) {
        if queued == Some(ClassOfService::Latency) {
            self.latency_class_seen_at = Some(now);
        }
        self.make_room(now);
    }

    /// Takes received frames: as [`Nic::handle_frame`] one after the other, and faster. What was
    /// dropped is counted.
    pub fn handle_frames(&mut self, now: Instant, clock: &impl Clock, frames: &mut [RxFrame<'_>]) {
        self.handle_frames_and_tell(now, clock, frames, |_| ());
    }

    /// As [`Nic::handle_frames`], and tells of each frame what became of it, before the next one is
    /// handled.
    pub fn handle_frames_and_tell(
        &mut self,
        now: Instant,
        clock: &impl Clock,
        frames: &mut [RxFrame<'_>],
        mut tell: impl FnMut(Result<(), DropReason>),
    ) {
        let mut batch = Batch::new();
        for frames in frames.chunks_mut(BATCH) {
            batch.clear();
            self.open(frames, &mut batch);
            for (frame, seen) in frames.iter_mut().zip(&batch) {
                let handled = self.handle_seen(now, clock, frame, seen);
                if let Some(verdicts) = &self.verdicts {
                    tell_of(verdicts, frame, handled);
                }
                tell(handled);
            }
        }
    }

    /// Counts a packet that was taken apart into so many frames.
    #[inline]
    pub fn note_packet(&mut self, frames: usize) {
        self.counters.count_packet(frames);
        if let Some(verdicts) = &self.verdicts {
            verdicts.tell(Told::Packet { frames, rest: Fate::Elsewhere });
        }
    }

    /// Counts the end of a packet that no frames can be found in: as one frame, and its octets.
    /// Whoever speaks another version is remembered.
    pub fn drop_tail(&mut self, Tail { reason, octets, first, source }: Tail) {
        if reason == DropReason::Version {
            self.counters.note_other_version(OtherVersion::new(source, first));
        }
        self.counters.count_received();
        self.counters.count_drop(reason);
        self.counters.count_tail(octets);
        if let Some(verdicts) = &self.verdicts {
            verdicts.tell(Told::Tail(Fate::Dropped(reason)));
        }
    }

    /// Takes a received frame.
    ///
    /// `now` may be from the start of an engine's turn. `clock` is read where that is not good
    /// enough: right before data of a mutation is applied and right after, and when a solicitation
    /// has come (P2).
    ///
    /// # Errors
    /// The reason why the frame was dropped. It is counted already.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        clock: &impl Clock,
        mut frame: RxFrame<'_>,
    ) -> Result<(), DropReason> {
        let mut batch = Batch::new();
        self.open(core::slice::from_mut(&mut frame), &mut batch);
        self.handle_seen(now, clock, &mut frame, &batch[0])
    }

    fn handle_seen(
        &mut self,
        now: Instant,
        clock: &impl Clock,
        frame: &mut RxFrame<'_>,
        seen: &Seen,
    ) -> Result<(), DropReason> {
        self.counters.count_received();
        self.responder.note_frame(now, frame);
        let result = self.handle_view(now, clock, frame, seen);
        if result.is_ok() {
            if seen.class == ClassOfService::Latency {
                self.latency_class_seen_at = Some(now);
            }
            if !self.config.is_alone()
                && let Ok(view) = &seen.view
            {
                self.learn(frame, view);
            }
        }
        result.inspect_err(|&reason| self.counters.count_drop(reason))
    }

    /// The initiator, and what it works with.
    #[inline]
    fn initiating(&mut self) -> (&mut Initiator, Tables<'_>) {
        let Self { config, security, regions, window, events, initiator, counters, .. } = self;
        let paths = self.paths.as_ref();
        (initiator, Tables { security, regions, window, events, counters, config, paths })
    }

    /// The responder, and what it works with.
    #[inline]
    fn responding(&mut self) -> (&mut Responder, Tables<'_>) {
        let Self { config, security, regions, window, events, responder, counters, .. } = self;
        let paths = self.paths.as_ref();
        (responder, Tables { security, regions, window, events, counters, config, paths })
    }

    /// Expires whatever is due. Early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        let (initiator, mut tables) = self.initiating();
        initiator.handle_timeout(now, &mut tables);
        let (responder, mut tables) = self.responding();
        responder.handle_timeout(now, &mut tables);
        if !self.regions.previous().is_empty() {
            let timeout = self.config.timeout_nanos;
            let lost = self.regions.previous_mut().handle_timeout(now, timeout);
            self.counters.previous_keys_lost.add(lost);
        }
        self.make_room(now);
    }

    /// Takes the window back from mutations whose data has not come in time, if somebody wants it
    /// (P13). After whatever makes somebody wait, takes room, or lets time pass.
    #[inline]
    fn make_room(&mut self, now: Instant) {
        // In most turns nothing is solicited, and that should be known soon.
        if self.responder.may_park() {
            self.park(now);
        }
    }

    #[inline(never)]
    fn park(&mut self, now: Instant) {
        let reads_wait = self.initiator.reads_wait();
        let (responder, mut tables) = self.responding();
        responder.park(now, reads_wait, &mut tables);
    }

    /// Writes at most one frame into `out`. Call until it returns `None`.
    ///
    /// As [`Nic::poll_transmits`], with one buffer.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        let mut frames = [TxFrame::new(out)];
        if self.poll_transmits(now, &mut frames, &mut Quantum::one_frame()) == 0 {
            None
        } else {
            frames[0].transmit
        }
    }

    /// Writes frames into `frames`, one into each, as long as `quantum` admits them, and returns
    /// how many.
    ///
    /// Each should have room for the largest frame that the device can send; responses are cut to
    /// it. With less than [`wire::FRAME_LEN_MIN`] bytes of room nothing is written. What this host
    /// sends for others takes turns with what it sends for its own ops, so that neither stops the
    /// other.
    #[must_use]
    pub fn poll_transmits(
        &mut self,
        now: Instant,
        frames: &mut [TxFrame<'_>],
        quantum: &mut Quantum,
    ) -> usize {
        let mut count = 0;
        for frames in frames.chunks_mut(BATCH) {
            let mut written = 0;
            for frame in &mut *frames {
                if !quantum.admits() || !self.write_next(now, frame) {
                    frame.transmit = None;
                    break;
                }
                if let Some(transmit) = &frame.transmit {
                    quantum.take(transmit);
                }
                quantum.expect_rest(self.rest_is_next);
                written += 1;
            }
            if written > 0 {
                let Self { security, initiator, .. } = self;
                security.seal(&mut frames[..written], |slot, tag| initiator.note_tag(slot, tag));
            }
            count += written;
            if written < frames.len() {
                break;
            }
        }
        if count > 0 {
            self.counters.count_sent(count as u64);
        }
        count
    }

    /// Writes the next frame, to be sealed. Returns whether there was one.
    fn write_next(&mut self, now: Instant, out: &mut TxFrame<'_>) -> bool {
        if out.bytes.len() < wire::FRAME_LEN_MIN || !self.may_seal() {
            return false;
        }
        // Only whether both wait matters, and mutations seldom do.
        let both_wait = self.responder.mutations_wait() && self.initiator.reads_wait();
        self.window.note_contended(both_wait);
        // Each of them is asked in this one place, so that what it gives back stays in registers:
        // 8 ns of a 64 B READ by `turn64_initiator_ops_per_s`, and 6 by
        // `turn64_responder_ops_per_s`, when this was written.
        for responder in [self.responder_first, !self.responder_first] {
            let is_written = if responder {
                let (responder, mut tables) = self.responding();
                responder.poll_transmit(now, &mut tables, out)
            } else {
                let (initiator, mut tables) = self.initiating();
                initiator.poll_transmit(now, &mut tables, out)
            };
            // A side that had nothing to send has not had its turn.
            if is_written {
                self.rest_is_next =
                    if responder { self.responder.has_rest() } else { self.initiator.has_rest() };
                self.responder_first = responder == self.rest_is_next;
                self.make_room(now);
                return true;
            }
        }
        false
    }

    /// Whether [`Nic::poll_transmit`] has a frame. An engine must not sleep over one that its
    /// device had no room for.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.security.can_seal() && self.output() > 0
    }

    /// About how many frames [`Nic::poll_transmits`] has, which is how many buffers to offer it. 0
    /// only if it has none, or if there is no counter value to seal them with, which is counted.
    #[must_use]
    pub fn frames_waiting(&self) -> usize {
        if self.may_seal() { self.output() } else { 0 }
    }

    /// The next completion. Its slot is free again once this returns it.
    #[must_use]
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.initiator.poll_completion(&self.counters)
    }

    /// A slot of a portal whose application may wait for events that were published since the last
    /// call, in a receive queue that is bound to it. Each once.
    #[must_use]
    pub fn poll_rung_portal(&mut self) -> Option<CommandSlotId> {
        self.events.poll(&mut self.regions)
    }

    /// The earliest instant at which [`Nic::handle_timeout`] has work. May change after any other
    /// call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let Self { initiator, responder, window, .. } = self;
        let reads_wait = initiator.reads_wait();
        let responder = responder.poll_timeout(window, reads_wait);
        let previous_keys = self.regions.previous().poll_timeout();
        initiator.poll_timeout().into_iter().chain(responder).chain(previous_keys).min()
    }
}

/// Tells what became of a frame. Seldom: while somebody captures.
#[cold]
fn tell_of(verdicts: &Verdicts, frame: &RxFrame<'_>, handled: Result<(), DropReason>) {
    let (at, len) = (frame.bytes.as_ptr().addr(), frame.bytes.len());
    verdicts.tell(Told::Frame { at, len, fate: handled.into() });
}
