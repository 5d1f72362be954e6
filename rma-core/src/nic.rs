//! The 1RMA NIC: figure 6 of the paper as a state machine without I/O.
//!
//! | the paper's box | here |
//! |---|---|
//! | command slots, CST | `initiator`, with `slot_list` |
//! | outgoing op FIFOs, arbiters | `initiator` |
//! | solicitation window | `solicitation_window` |
//! | RRT | [`RegionTable`] |
//! | incoming op FIFOs | `responder` |
//! | encryption-decryption blocks | `security`, over [`crate::crypto`] |
//!
//! What is not here: congestion control, retry, ordering, transfers of more than 4 KiB. Those are software
//! (Table 1), and this module never imports from them.

mod config;
mod counters;
mod initiator;
mod key_cache;
mod notice_limiter;
mod region_table;
mod responder;
mod security;
mod slot_list;
mod solicitation_window;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use config::{ConfigError, NicConfig, NicConfigBuilder, ReceiveLenMax, Timing};
pub use counters::NicCounters;
pub use region_table::{RegionEntry, RegionTable};

use crate::{
    addr::Pid,
    backend::{RxFrame, Transmit},
    command::{Command, CommandSlotId, Completion},
    crypto::{AeadProvider, IvCounter, PortableAead},
    error::{CommandError, DropReason},
    time::Instant,
    wire::{self, FrameView, read::REQUEST_LEN},
};
use initiator::{Dispatch, Initiator, Landing};
use responder::{Responder, Serving};
use security::Security;

/// A 1RMA NIC as a state machine.
///
/// Methods come in four kinds. `handle_*` takes an event: a command, a frame, the passing of time. `poll_*`
/// gives output: call it until it returns `None`. The rest configure (regions, slots) or look (counters).
///
/// `now` never goes backwards. After any `handle_*` call drain `poll_transmit`, then `poll_completion`,
/// then ask `poll_timeout` when to come back. Every method does bounded work, and none of the `handle_*`
/// and `poll_*` allocates, blocks, or panics on what it is given.
#[derive(Debug)]
pub struct Nic<A: AeadProvider = PortableAead> {
    config: NicConfig,
    security: Security<A>,
    regions: RegionTable,
    initiator: Initiator<A>,
    responder: Responder<A>,
    counters: Arc<NicCounters>,
    /// Whether the responder is asked first for the next frame to send.
    responder_first: bool,
}

impl Nic {
    /// A NIC with the portable AEAD provider.
    #[must_use]
    pub fn new(config: NicConfig) -> Self {
        Self::with_aead(config, PortableAead)
    }
}

impl<A: AeadProvider> Nic<A> {
    /// A NIC that encrypts with `aead`.
    #[must_use]
    pub fn with_aead(config: NicConfig, aead: A) -> Self {
        let counter = IvCounter::starting_at(config.settings.counter_start);
        Self {
            security: Security::new(aead, config.settings.engine, counter),
            regions: RegionTable::new(config.settings.regions),
            initiator: Initiator::new(&config),
            responder: Responder::new(&config),
            counters: Arc::default(),
            responder_first: true,
            config,
        }
    }

    /// What the NIC was built with.
    #[must_use]
    pub const fn config(&self) -> &NicConfig {
        &self.config
    }

    /// Follows a device whose MTU has changed.
    ///
    /// # Errors
    /// If the shortest response no longer fits. Then nothing changes.
    pub fn set_receive_len_max(&mut self, receive: ReceiveLenMax) -> Result<(), ConfigError> {
        let settings = NicConfigBuilder { receive_len_max: receive, ..self.config.settings };
        self.config = settings.build()?;
        Ok(())
    }

    /// The registered region table.
    #[must_use]
    pub const fn regions(&self) -> &RegionTable {
        &self.regions
    }

    /// The registered region table, to register and deregister.
    pub const fn regions_mut(&mut self) -> &mut RegionTable {
        &mut self.regions
    }

    /// Gives command slots to a process. The PID goes into every request from these slots (§4.2).
    ///
    /// # Panics
    /// If a slot does not exist, or has not completed its last command. The driver sees to that.
    pub fn configure_slots(&mut self, slots: core::ops::Range<u16>, pid: Option<Pid>) {
        for slot in slots.map(CommandSlotId) {
            assert!(self.initiator.is_free(slot), "slot {slot} is reconfigured while in use");
            self.initiator.configure_slot(slot, pid);
        }
    }

    /// How many command slots there are.
    #[must_use]
    pub const fn slot_count(&self) -> usize {
        self.initiator.slot_count()
    }

    /// Whether all of `slots` are free.
    #[must_use]
    pub fn are_free(&self, slots: core::ops::Range<u16>) -> bool {
        slots.map(CommandSlotId).all(|slot| self.initiator.is_free(slot))
    }

    /// Payload bytes that are solicited and have not arrived (P3): never above the window.
    #[must_use]
    pub const fn window_debited(&self) -> u32 {
        self.initiator.window_debited()
    }

    /// What the NIC counts.
    #[must_use]
    pub const fn counters(&self) -> &Arc<NicCounters> {
        &self.counters
    }

    /// Takes a command into its slot.
    ///
    /// # Errors
    /// If the slot is nobody's or busy: then there is no op, and nothing else is disturbed. A command that
    /// makes no sense otherwise completes with INVALID_COMMAND.
    pub fn handle_command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        let addresses = self.config.settings.addresses;
        self.initiator
            .handle_command(now, command, &self.regions, &addresses)
            .inspect_err(|_| self.counters.count_refused())
    }

    /// Completes a command that could not be read with INVALID_COMMAND.
    ///
    /// # Errors
    /// As [`Nic::handle_command`].
    pub fn handle_unreadable_command(
        &mut self,
        now: Instant,
        slot: CommandSlotId,
    ) -> Result<(), CommandError> {
        self.initiator
            .handle_unreadable_command(now, slot)
            .inspect_err(|_| self.counters.count_refused())
    }

    /// Takes a received frame.
    ///
    /// # Errors
    /// Why the frame was dropped. It is counted already.
    pub fn handle_frame(&mut self, now: Instant, frame: RxFrame<'_>) -> Result<(), DropReason> {
        self.counters.count_received();
        self.accept_frame(now, frame).inspect_err(|&reason| self.counters.count_drop(reason))
    }

    fn accept_frame(&mut self, now: Instant, frame: RxFrame<'_>) -> Result<(), DropReason> {
        if !self.config.settings.addresses.contains(frame.destination) {
            return Err(DropReason::NotForThisHost);
        }
        match FrameView::parse(frame.bytes)? {
            FrameView::ReadRequest(view) => {
                let claims = view.claims();
                let mut serving = Serving {
                    security: &mut self.security,
                    regions: &self.regions,
                    counters: &self.counters,
                };
                self.responder.handle_request(now, claims, frame, &mut serving)
            }
            FrameView::ReadResponse(view) => {
                let claims = view.claims();
                let landing = Landing { security: &self.security, regions: &self.regions };
                self.initiator.handle_response(now, frame.source, claims, frame.bytes, &landing)
            }
            FrameView::Failure(view) => {
                let claims = view.claims();
                self.initiator.handle_failure(
                    now,
                    frame.source,
                    claims,
                    frame.bytes,
                    &self.security,
                )
            }
        }
    }

    /// Expires whatever is due. Early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.initiator.handle_timeout(now);
    }

    /// Writes at most one frame into `out`. Call until it returns `None`.
    ///
    /// `out` should have room for the largest frame that the device can send; responses are cut to it. With
    /// less than [`wire::FRAME_LEN_MIN`] bytes of room nothing is written. Notices and responses take turns
    /// with requests, so that serving others does not stop this host's own ops, nor the reverse.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        if out.len() < wire::FRAME_LEN_MIN {
            return None;
        }
        let responder_first = self.responder_first;
        self.responder_first = !responder_first;
        let transmit = if responder_first {
            self.poll_responder(out).or_else(|| self.poll_initiator(now, out))
        } else {
            self.poll_initiator(now, out).or_else(|| self.poll_responder(out))
        };
        if transmit.is_some() {
            self.counters.count_sent();
        }
        transmit
    }

    /// Whether [`Nic::poll_transmit`] has a frame. An engine must not sleep over one that its device had no
    /// room for.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.responder.wants_transmit() || self.initiator.wants_transmit()
    }

    fn poll_responder(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let mut serving = Serving {
            security: &mut self.security,
            regions: &self.regions,
            counters: &self.counters,
        };
        self.responder.poll_transmit(&mut serving, out)
    }

    fn poll_initiator(&mut self, now: Instant, out: &mut [u8]) -> Option<Transmit> {
        let out: &mut [u8; REQUEST_LEN] = out.first_chunk_mut()?;
        let mut dispatch = Dispatch {
            security: &mut self.security,
            config: &self.config,
            addresses: &self.config.settings.addresses,
        };
        self.initiator.poll_transmit(now, &mut dispatch, out)
    }

    /// The next completion. Its slot is free again once this returns it.
    #[must_use]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.initiator.poll_completion(&self.counters)
    }

    /// The earliest instant at which [`Nic::handle_timeout`] has work. May change after any other call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.initiator.poll_timeout()
    }
}
