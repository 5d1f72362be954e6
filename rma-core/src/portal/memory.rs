//! A portal's memory: both rings and both doorbells, in one part of a mapping.
//!
//! | offset in bytes | what | written by |
//! |---|---|---|
//! | 0 | [label](Label): kind `1RMAport`, version 2, size: the entries of the ring of completions | who formats it |
//! | 128 | [doorbell](Doorbell): whether the engine sleeps | engine |
//! | 256 | doorbell: whether the application's thread sleeps | application |
//! | 384 | [ring](rma_shm::spsc) of commands | application; the engine its `head` |
//! | behind it | ring of completions | engine; the application its `head` |
//!
//! The ring of completions has as many entries as the portal has slots, rounded up to a power of
//! two; that of commands twice as many, as some commands have two lines. Both sides know the number
//! of slots, and compute from it where everything lies: nothing is found by what the memory says.
//! Version 2 also says how commands and completions are encoded into lines
//! ([`Command`](crate::command::Command), [`Completion`](crate::command::Completion)): whoever
//! changes that counts it up.
//!
//! The two doorbells are of one portal alone, so an application that writes either of them, against
//! the rules, delays its own commands and completions. One that says at all times that it sleeps
//! has the engine wake it after each turn that gives it completions: one system call, for which the
//! engine's other applications wait.

use core::ops::Range;
use std::sync::Arc;

use rma_shm::{Capacity, Doorbell, Label, LayoutError, LinesEach, Mapping, RingMemory};

use super::{CommandPortal, PortalConfig, PortalPort};

const ENGINE_DOORBELL: usize = Label::FOOTPRINT;
const APPLICATION_DOORBELL: usize = ENGINE_DOORBELL + Doorbell::FOOTPRINT;
const COMMANDS: usize = APPLICATION_DOORBELL + Doorbell::FOOTPRINT;

/// The memory that the two ends of a portal are made of. One side formats it in a mapping and the
/// other, which may be another process, joins it there; each makes its end.
/// [`portal()`](super::portal()) is both in one process.
///
/// The application may be hostile (P8): what it writes, into any part of this memory and at any
/// time, the engine's end takes for a command, or for an index that cannot be. The application
/// trusts its engine, as it would a NIC.
#[derive(Clone, Debug)]
pub struct PortalMemory {
    commands: RingMemory,
    completions: RingMemory,
    engine_doorbell: Doorbell,
    application_doorbell: Doorbell,
    slots_max: usize,
}

/// The function that makes one ring, or finds it.
type PlaceRing = fn(&Arc<Mapping>, usize, Capacity) -> Result<RingMemory, LayoutError>;

impl PortalMemory {
    /// The bytes that a portal of `slots` slots takes.
    #[must_use]
    pub const fn footprint(slots: u16) -> usize {
        let [commands, completions] = Self::capacities(slots);
        COMMANDS + RingMemory::footprint(commands) + RingMemory::footprint(completions)
    }

    /// Of the ring of commands, and of that of completions.
    const fn capacities(slots: u16) -> [Capacity; 2] {
        [Capacity::for_lines(slots, LinesEach::Two), Capacity::for_lines(slots, LinesEach::One)]
    }

    const fn label(slots: u16) -> Label {
        let [_, completions] = Self::capacities(slots);
        Label { kind: *b"1RMAport", version: 2, size: completions.get() as u64 }
    }

    /// Makes the memory of a portal of `slots` slots at the beginning of `mapping`, over whatever
    /// was there: no commands, no completions, and nobody sleeps.
    ///
    /// # Errors
    /// If the mapping is shorter than [`PortalMemory::footprint`].
    pub fn format(mapping: &Arc<Mapping>, slots: u16) -> Result<Self, LayoutError> {
        Self::label(slots).format(mapping, 0, Self::footprint(slots), || {
            Self::place(mapping, slots, RingMemory::format)
        })
    }

    /// The memory of a portal of `slots` slots that another process has formatted at the beginning
    /// of `mapping`. Both have agreed on the slots.
    ///
    /// # Errors
    /// If the mapping is shorter than [`PortalMemory::footprint`], or there is no such portal.
    pub fn join(mapping: &Arc<Mapping>, slots: u16) -> Result<Self, LayoutError> {
        Self::label(slots).check(mapping, 0, Self::footprint(slots))?;
        Self::place(mapping, slots, RingMemory::join)
    }

    fn place(mapping: &Arc<Mapping>, slots: u16, ring: PlaceRing) -> Result<Self, LayoutError> {
        let [commands, completions] = Self::capacities(slots);
        let behind = COMMANDS + RingMemory::footprint(commands);
        Ok(Self {
            commands: ring(mapping, COMMANDS, commands)?,
            completions: ring(mapping, behind, completions)?,
            engine_doorbell: Doorbell::at(mapping, ENGINE_DOORBELL)?,
            application_doorbell: Doorbell::at(mapping, APPLICATION_DOORBELL)?,
            slots_max: completions.get(),
        })
    }

    /// Whether the engine sleeps: what the application looks at after it has issued commands, as
    /// [`PortalConfig::bell`], and where the engine says it, as
    /// [`PortalPort::set_engine_doorbell`].
    #[must_use]
    pub const fn engine_doorbell(&self) -> &Doorbell {
        &self.engine_doorbell
    }

    /// Whether the application's thread sleeps: what the engine looks at after it has given
    /// completions, as [`PortalPort::set_sleeper`] says.
    #[must_use]
    pub const fn application_doorbell(&self) -> &Doorbell {
        &self.application_doorbell
    }

    /// The ring of commands.
    #[must_use]
    pub const fn commands(&self) -> &RingMemory {
        &self.commands
    }

    /// The ring of completions.
    #[must_use]
    pub const fn completions(&self) -> &RingMemory {
        &self.completions
    }

    /// The application's end. Which slots are free, and which have an op under way, it keeps to
    /// itself, so the memory is for one application: before the next one it is formatted anew.
    ///
    /// # Panics
    /// If there are no slots, or more than the memory is for.
    #[must_use]
    pub fn into_application(self, config: PortalConfig) -> CommandPortal {
        self.check_slots(&config.slots);
        let (commands, completions) =
            (self.commands.into_producer(), self.completions.into_consumer());
        CommandPortal::new(config, commands, completions)
    }

    /// The engine's end, for a portal that has `slots`.
    ///
    /// # Panics
    /// As [`PortalMemory::into_application`].
    #[must_use]
    pub fn into_port(self, slots: Range<u16>) -> PortalPort {
        self.check_slots(&slots);
        PortalPort::new(slots, self.commands.into_consumer(), self.completions.into_producer())
    }

    fn check_slots(&self, slots: &Range<u16>) {
        assert!(!slots.is_empty(), "a portal has at least one slot");
        assert!(slots.len() <= self.slots_max, "the rings have room for every slot");
    }
}
