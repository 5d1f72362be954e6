//! The engine's end of a portal. It believes nothing that the application's end says.

use core::ops::Range;

use rma_shm::{Consumer, Doorbell, Line, Producer};

use super::{Bell, Flag};
use crate::command::{Command, CommandSlotId, Completion};

/// The engine's end of a portal.
#[derive(Debug)]
pub struct PortalPort {
    commands: Consumer,
    completions: Producer,
    slots: Range<u16>,
    /// Commands taken whose completions have not been given. `completions` has room for them.
    outstanding: usize,
    /// How many of the rings' impossible indexes have been told.
    impossible_told: u64,
    /// The bell that wakes the application's thread when it sleeps; `None` if it never does.
    sleeper: Option<Bell>,
    /// The doorbell at which the application looks whether the engine sleeps; `None` if it looks at
    /// the host's own doorbell.
    engine_doorbell: Option<Doorbell>,
    /// The flag that the application raises after commands; `None` if the engine looks in every
    /// turn.
    flag: Option<Flag>,
    /// Whether completions have been given since the application's thread was last looked after.
    given: bool,
}

impl PortalPort {
    /// The engine's end of rings whose other end may be anybody's.
    pub(super) const fn new(slots: Range<u16>, commands: Consumer, completions: Producer) -> Self {
        Self {
            commands,
            completions,
            slots,
            outstanding: 0,
            impossible_told: 0,
            sleeper: None,
            engine_doorbell: None,
            flag: None,
            given: false,
        }
    }

    /// The engine looks after an application's thread that sleeps: it rings `bell` after
    /// completions that it has given meanwhile, at most once a turn, and when it serves the portal
    /// no more.
    ///
    /// Of an application that is not trusted, `bell` must not ring a file descriptor that the
    /// application has, too: see [`Wake::wake`](super::Wake::wake).
    pub fn set_sleeper(&mut self, bell: Bell) {
        self.sleeper = Some(bell);
    }

    /// The application cannot look at the host's own doorbell whether the engine sleeps, and looks
    /// at this one of the portal's memory
    /// ([`PortalMemory::engine_doorbell`](super::PortalMemory::engine_doorbell)). The engine says
    /// it there, too, from now on.
    pub fn set_engine_doorbell(&mut self, doorbell: Doorbell) {
        self.engine_doorbell = Some(doorbell);
    }

    /// Returns the doorbell at which the engine says that it sleeps, if not at the host's own
    /// doorbell alone.
    pub(crate) const fn engine_doorbell(&self) -> Option<&Doorbell> {
        self.engine_doorbell.as_ref()
    }

    /// The application raises `flag` after commands ([`PortalConfig::flag`](super::PortalConfig)),
    /// so from when the engine next begins to serve the portal it looks at it only then. A flag of
    /// a word that only that application's process can write, or processes that trust each other:
    /// see [`Flags`](rma_shm::flags).
    pub fn set_flag(&mut self, flag: Flag) {
        self.flag = Some(flag);
    }

    /// Returns the flag that the application raises after commands, if it does.
    pub(crate) const fn flag(&self) -> Option<&Flag> {
        self.flag.as_ref()
    }

    /// The portal's command slots.
    #[must_use]
    pub const fn slots(&self) -> &Range<u16> {
        &self.slots
    }

    /// Whether no command can be taken. Looks at the other side's memory.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let has_room = self.outstanding + self.completions.len() < self.completions.capacity();
        self.commands.is_empty() || !has_room
    }

    /// Whether every command that was taken has got its completion.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.outstanding == 0
    }

    /// Whether [`PortalPort::take`] has a command to take. It keeps it, whatever the application
    /// does.
    pub(crate) fn has_command(&mut self) -> bool {
        // In this order: an application that keeps to the rules makes room before it issues the
        // command.
        self.commands.has_line() && self.completions.has_room_for(self.outstanding + 1)
    }

    /// Takes the next command, or the slot of one that cannot be read; `None` if there is none, or
    /// its completion would have no room.
    #[inline]
    pub fn take(&mut self) -> Option<Result<Command, CommandSlotId>> {
        let line = self.take_line()?;
        Some(match self.take_second(&line) {
            None => Command::from_line(&line),
            Some(second) => Command::from_lines(&line, &second),
        })
    }

    /// [`PortalPort::take`], with the command written where it belongs: the longest ones are much
    /// longer than most.
    #[inline]
    pub fn take_into(&mut self, command: &mut Command) -> Option<Result<(), CommandSlotId>> {
        let line = self.take_line()?;
        let second = self.take_second(&line);
        let read = command.read(&line, second.as_ref());
        Some(read.ok_or(Command::slot_of(&line)))
    }

    /// Takes the first line of the next command; its second one, if it has one, must follow. `None`
    /// as [`PortalPort::take`].
    #[inline]
    pub(crate) fn take_line(&mut self) -> Option<Line> {
        if !self.has_command() {
            return None;
        }
        let line = self.commands.pop_and_wipe_if(Command::is_secret)?;
        self.outstanding += 1;
        Some(line)
    }

    /// Takes the second line of the command that begins with `first`, if it has one. Both lines
    /// became visible in one step, so where it is not there, the application does not keep to the
    /// rules.
    #[inline]
    pub(crate) fn take_second(&mut self, first: &Line) -> Option<Line> {
        if Command::has_second(first) {
            self.commands.pop_and_wipe_if(Command::is_secret)
        } else {
            None
        }
    }

    /// How many more of the other side's indexes were found to be impossible since the last call.
    pub(crate) fn impossible_indexes(&mut self) -> u64 {
        let all =
            self.commands.impossible_indexes().wrapping_add(self.completions.impossible_indexes());
        all.wrapping_sub(core::mem::replace(&mut self.impossible_told, all))
    }

    /// Whether `slot` is one of the portal's.
    pub(crate) fn owns(&self, slot: CommandSlotId) -> bool {
        self.slots.contains(&slot.0)
    }

    /// A command that was taken led to no op, so there will be no completion.
    pub(crate) const fn forget(&mut self) {
        self.outstanding -= 1;
    }

    /// Gives a completion to the application. `take` has seen room for it, which the application
    /// cannot take back. `true` if it is the first one that [`PortalPort::wake_sleeper`] must be
    /// called for.
    ///
    /// One for each command that was taken, and no more.
    #[inline]
    pub fn complete(&mut self, completion: &Completion) -> bool {
        self.outstanding -= 1;
        let pushed = self.completions.push(&completion.to_line());
        debug_assert!(pushed.is_ok(), "room that was seen stays");
        self.sleeper.is_some() && !core::mem::replace(&mut self.given, true)
    }

    /// An event was published in a receive queue that is bound to the portal. `true` as
    /// [`PortalPort::complete`] says.
    pub(crate) fn note_event(&mut self) -> bool {
        self.sleeper.is_some() && !core::mem::replace(&mut self.given, true)
    }

    /// Wakes the application's thread if it sleeps. To be called once after a burst of completions.
    pub fn wake_sleeper(&mut self) {
        self.given = false;
        if let Some(bell) = &self.sleeper
            && bell.doorbell.needs_ring()
        {
            bell.wake.wake();
        }
    }
}

impl Drop for PortalPort {
    /// The engine gives no more completions: this wakes a thread that waits for one, so that it
    /// learns that.
    fn drop(&mut self) {
        if let Some(bell) = &self.sleeper {
            bell.wake.wake();
        }
    }
}
