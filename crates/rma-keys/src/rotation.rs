//! The life of a region's keys at its rotator: when the next is announced, when the responder must
//! go by it, and what is done until it is known that it does (§5.2, §7.3, figure 14).
//!
//! One [`Rotation`] rotates one region of a [`Service`]; a region has one rotator. It changes the
//! catalog itself, and says in [`Rotation::poll_todo`] what its driver must do, which does the I/O:
//! rekey the region, or probe it. Time is an argument, and fresh keys come from the caller.
//!
//! ```text
//!            announce_at                swap_at              OK
//!  Steady(e) -----------> Announced(e+1) ------> Swapping(e+1) ----> Steady(e+1)
//!      |                       |                ^ ^    |
//!      | on command: lead 0    | withdrawn:     | |    | withdrawn: a fresh key, when it is
//!      +-----------------------+----------------+ +----+ known that no other may hold
//!                                fresh key
//!
//!  Swapping by Rekey:   Rekey --TIMEOUT or REMOTE_AUTHENTICATION_FAILURE--> Unknown
//!                         ^                                                    | READ under e+1
//!                         +----------------REMOTE_AUTHENTICATION_FAILURE-------+--answer--> OK
//! ```
//!
//! Invariants:
//! - Both keys are in the catalog before the responder is told of the later one, and until it is
//!   known to have it: whoever is refused and fetches in between needs both.
//! - The responder never goes by a key that the catalog does not have.
//! - A withdrawal never ends with a key that was announced before it, as whoever is shut out may
//!   hold that one.
//! - Until its outcome is known, a Rekey is tried again with the same key alone: another one would
//!   make three that the responder may go by.

mod schedule;
mod swap;

use core::{fmt, time::Duration};

use rma_core::{op::OpStatus, time::Instant};

pub use schedule::Schedule;
#[cfg(feature = "tls")]
pub(crate) use swap::retry_pause;
pub use swap::{Alarm, Todo, Way};

use crate::{
    audit::Event,
    catalog::{CatalogError, Region, Term},
    epoch::Epoch,
    jitter::Jitter,
    limits::{EPOCH_MIN, WALL_EVERY},
    name::RegionName,
    policy::Authorizer,
    secret::RegionSecret,
    service::Service,
    time::{Now, WallTime},
};
use swap::{After, Swap};

/// The means of a rotation in one turn of its driver.
pub struct Turn<'a, A> {
    /// The time.
    pub now: Now,
    /// The service whose catalog has the region.
    pub service: &'a mut Service<A>,
    /// Draws a fresh key from a secure random source.
    pub fresh: &'a mut dyn FnMut() -> RegionSecret,
    /// The events to write into the audit log.
    pub events: Vec<Event>,
}

impl<A> fmt::Debug for Turn<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, events, .. } = self;
        f.debug_struct("Turn").field("now", now).field("events", events).finish_non_exhaustive()
    }
}

/// The plan by which a region's key is rotated.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The way to its responder.
    pub way: Way,
    /// How often.
    pub schedule: Schedule,
    /// The seed of the random parts of times. Regions with the same one change their keys together.
    pub seed: u64,
}

/// The counters of a rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationCounters {
    /// Epochs that have ended, for whatever reason.
    pub rotated: u64,
    /// Those of them that ended late.
    pub late_epochs: u64,
    /// Rekeys that were asked for.
    pub rekeys: u64,
    /// Probes that were asked for, as it was not known whether a Rekey had taken effect.
    pub probes: u64,
    /// How often somebody was shut out.
    pub withdrawn: u64,
}

/// Rotates one region.
#[derive(Debug)]
pub struct Rotation {
    name: RegionName,
    way: Way,
    schedule: Schedule,
    jitter: Jitter,
    phase: Phase,
    /// When somebody may not have the region any longer, by the wall clock.
    lapses_at: Option<WallTime>,
    /// When the wall clock must be looked at, where the rules have dates.
    look_at: Instant,
    /// Whether the key must be changed again, for a fresh one, when this change is known.
    again: bool,
    alarm: Option<Alarm>,
    counters: RotationCounters,
}

/// The phase of a region in the life of its keys. When the present epoch ends, the catalog says.
#[derive(Debug)]
enum Phase {
    /// Its responder goes by the present key, and no other is announced: nor will one be, if it is
    /// known that the present key is the last that somebody may have.
    Steady { is_last: bool },
    /// The next key is in the catalog, and its time has not come.
    Announced { next: Next },
    /// The responder must go by the next key.
    Swapping { next: Next, swap: Swap },
}

/// A key whose turn has not come, or is not known to have.
#[derive(Debug)]
struct Next {
    epoch: Epoch,
    secret: RegionSecret,
}

impl Rotation {
    /// Puts a region into the catalog, whose responder goes by `secret`, and rotates it from now
    /// on. One of the same name goes out: its rotation must be dropped.
    ///
    /// # Errors
    /// As [`Service::publish`].
    pub fn publish<A: Authorizer>(
        turn: &mut Turn<'_, A>,
        name: RegionName,
        region: Region,
        secret: &RegionSecret,
        plan: Plan,
    ) -> Result<Self, CatalogError> {
        let Plan { way, schedule, seed } = plan;
        let mut rotation = Self {
            name,
            way,
            schedule,
            jitter: Jitter(seed),
            phase: Phase::Steady { is_last: false },
            lapses_at: None,
            look_at: turn.now.boot,
            again: false,
            alarm: None,
            counters: RotationCounters::default(),
        };
        let term = rotation.term(turn, turn.now.boot);
        let name = rotation.name.clone();
        let (_, event) = turn.service.publish(turn.now, name, region, secret, term)?;
        turn.events.push(event);
        rotation.look(turn)?;
        Ok(rotation)
    }

    /// The region.
    #[must_use]
    pub const fn name(&self) -> &RegionName {
        &self.name
    }

    /// Returns its counters.
    #[must_use]
    pub const fn counters(&self) -> RotationCounters {
        self.counters
    }

    /// Returns the alarm to raise, if there is a new one.
    #[must_use]
    pub const fn poll_alarm(&mut self) -> Option<Alarm> {
        self.alarm.take()
    }

    /// Returns the driver's next task. Each Rekey and each probe is told once: its outcome is what
    /// [`Rotation::handle_rekey`] or [`Rotation::handle_probe`] waits for. The answer may be
    /// another after each call of a method of this rotation.
    pub fn poll_todo<A: Authorizer>(&mut self, now: Instant, service: &Service<A>) -> Todo<'_> {
        let Some(entry) = service.catalog().find(&self.name) else { return Todo::Wait(None) };
        let (present, term) = (entry.present().epoch(), entry.present().term());
        let has_dates = service.authorizer().has_dates(&self.name);
        let look_at = has_dates.then_some(self.look_at);
        let todo = match &mut self.phase {
            Phase::Steady { is_last: false } => Todo::Wait(Some(term.announce_at)),
            Phase::Steady { is_last: true } | Phase::Announced { .. } => {
                Todo::Wait(Some(term.ends_at))
            }
            Phase::Swapping { next, swap } => swap.poll(now, present, next.epoch, &next.secret),
        };
        match todo {
            Todo::Wait(until) => return Todo::Wait([until, look_at].into_iter().flatten().min()),
            Todo::Rekey { .. } => self.counters.rekeys += 1,
            Todo::Probe { .. } => self.counters.probes += 1,
        }
        todo
    }

    /// Does what time has come for: announces the next key, begins to swap, or finds that somebody
    /// may not have the region any longer.
    ///
    /// # Errors
    /// If the region is no longer in the catalog, or `fresh` has drawn the same key twice.
    pub fn handle_timeout<A: Authorizer>(
        &mut self,
        turn: &mut Turn<'_, A>,
    ) -> Result<(), CatalogError> {
        let Now { boot, wall } = turn.now;
        if self.lapses_at.is_some_and(|it| it <= wall) {
            self.lapses_at = None;
            self.withdraw(turn)?;
        }
        if self.look_at <= boot {
            self.look(turn)?;
        }
        let Term { announce_at, ends_at } = self.present(turn)?;
        match &mut self.phase {
            Phase::Steady { .. } if ends_at <= boot => {
                self.announce(turn, boot)?;
                self.swap(boot, ends_at);
            }
            Phase::Steady { is_last: false } if announce_at <= boot => {
                let most = self.most(turn, ends_at);
                if most < EPOCH_MIN {
                    self.phase = Phase::Steady { is_last: true };
                } else {
                    self.announce(turn, ends_at)?;
                }
            }
            Phase::Announced { .. } if ends_at <= boot => self.swap(boot, ends_at),
            Phase::Swapping { swap, .. } => self.alarm = swap.handle_timeout(boot).or(self.alarm),
            _ => {}
        }
        Ok(())
    }

    /// Goes on with a change that an earlier life of the service may have begun: the responder may
    /// go by `secret` already, or not. To be called right after [`Rotation::publish`].
    ///
    /// # Errors
    /// If `secret` is the key that it was published with.
    pub fn take_up<A: Authorizer>(
        &mut self,
        turn: &mut Turn<'_, A>,
        secret: &RegionSecret,
    ) -> Result<Epoch, CatalogError> {
        let boot = turn.now.boot;
        let term = self.term(turn, boot);
        let (epoch, event) = turn.service.announce(turn.now, &self.name, secret, boot, term)?;
        turn.events.push(event);
        let secret = secret.copied();
        let (next, swap) = (Next { epoch, secret }, Swap::taken_up(self.way, boot));
        self.phase = Phase::Swapping { next, swap };
        Ok(epoch)
    }

    /// The policy has changed: the present epoch ends sooner, if its rules now say so. What the
    /// change takes away is another matter: [`Rotation::withdraw`].
    ///
    /// # Errors
    /// As [`Rotation::handle_timeout`].
    pub fn handle_policy<A: Authorizer>(
        &mut self,
        turn: &mut Turn<'_, A>,
    ) -> Result<(), CatalogError> {
        self.look(turn)?;
        self.handle_timeout(turn)
    }

    /// Changes the key now. What is announced already is installed; what is under way goes on.
    ///
    /// # Errors
    /// As [`Rotation::handle_timeout`].
    pub fn rotate<A: Authorizer>(&mut self, turn: &mut Turn<'_, A>) -> Result<(), CatalogError> {
        let boot = turn.now.boot;
        match self.phase {
            Phase::Steady { .. } => self.announce(turn, boot)?,
            Phase::Announced { .. } => turn.service.hasten(&self.name, boot)?,
            Phase::Swapping { .. } => return Ok(()),
        }
        self.swap(boot, boot);
        Ok(())
    }

    /// Changes the key now, for one that nobody can hold: somebody may not have the region any
    /// longer. Where one that may have been announced is being installed, or may have been, that is
    /// found out first.
    ///
    /// A key that has *leaked* is not to be withdrawn by Rekey: who holds it and a recording of the
    /// Rekey has the next one as well. The region's own host has to do that.
    ///
    /// # Errors
    /// As [`Rotation::handle_timeout`].
    pub fn withdraw<A: Authorizer>(&mut self, turn: &mut Turn<'_, A>) -> Result<(), CatalogError> {
        self.counters.withdrawn += 1;
        self.again = true;
        self.settle(turn)
    }

    /// Withdraws if that must be done, unless the responder may go by what is announced: then it
    /// would have a key that the catalog does not.
    fn settle<A: Authorizer>(&mut self, turn: &mut Turn<'_, A>) -> Result<(), CatalogError> {
        let may_hold = matches!(&self.phase, Phase::Swapping { swap, .. } if swap.may_hold());
        if may_hold || !core::mem::take(&mut self.again) {
            return Ok(());
        }
        self.replace(turn)
    }

    /// The Rekey to epoch `to` has ended so. A region's own host that could not do it is told as
    /// [`OpStatus::DispatchTimeout`], one that may do it yet as [`OpStatus::Timeout`]. What was not
    /// asked for, or not lately, changes nothing.
    ///
    /// # Errors
    /// As [`Rotation::handle_timeout`].
    pub fn handle_rekey<A: Authorizer>(
        &mut self,
        turn: &mut Turn<'_, A>,
        to: Epoch,
        status: OpStatus,
    ) -> Result<(), CatalogError> {
        let after = self.swap_to(to).and_then(|it| it.handle_rekey(turn.now.boot, status));
        self.go_on(turn, to, after)
    }

    /// The probe under epoch `under` has ended so.
    ///
    /// # Errors
    /// As [`Rotation::handle_timeout`].
    pub fn handle_probe<A: Authorizer>(
        &mut self,
        turn: &mut Turn<'_, A>,
        under: Epoch,
        status: OpStatus,
    ) -> Result<(), CatalogError> {
        let after = self.swap_to(under).and_then(|it| it.handle_probe(turn.now.boot, status));
        self.go_on(turn, under, after)
    }

    fn go_on<A: Authorizer>(
        &mut self,
        turn: &mut Turn<'_, A>,
        to: Epoch,
        after: Option<After>,
    ) -> Result<(), CatalogError> {
        match after {
            None => Ok(()),
            Some(After::Again(alarm)) => {
                self.alarm = alarm.or(self.alarm);
                self.settle(turn)
            }
            Some(After::Done) => {
                turn.events.push(turn.service.install(turn.now, &self.name, to)?);
                self.counters.rotated += 1;
                if let Phase::Swapping { swap, .. } = &self.phase {
                    let is_late = swap.late_by(turn.now.boot).is_some();
                    self.counters.late_epochs += u64::from(is_late);
                }
                self.phase = Phase::Steady { is_last: false };
                self.settle(turn)
            }
        }
    }

    fn swap_to(&mut self, epoch: Epoch) -> Option<&mut Swap> {
        match &mut self.phase {
            Phase::Swapping { next, swap } if next.epoch == epoch => Some(swap),
            _ => None,
        }
    }

    fn present<A: Authorizer>(&self, turn: &Turn<'_, A>) -> Result<Term, CatalogError> {
        let entry = turn.service.catalog().find(&self.name);
        let unknown = || CatalogError::Unknown { name: self.name.clone() };
        entry.map(|it| it.present().term()).ok_or_else(unknown)
    }

    /// Looks up when somebody may not have the region any longer, and ends epochs sooner that are
    /// longer than the rules now say: there may be others, and the wall clock may have been wrong
    /// when the epochs began.
    fn look<A: Authorizer>(&mut self, turn: &mut Turn<'_, A>) -> Result<(), CatalogError> {
        let (authorizer, Now { boot, wall }) = (turn.service.authorizer(), turn.now);
        self.lapses_at = authorizer.lapses_at(&self.name, wall);
        self.look_at = boot + WALL_EVERY;
        let most = authorizer.epoch_max(&self.name, wall);
        turn.service.limit(&self.name, boot + most)
    }

    /// How long an epoch that begins at `begins_at` may last if its key is given from now on.
    fn most<A: Authorizer>(&self, turn: &Turn<'_, A>, begins_at: Instant) -> Duration {
        let most = turn.service.authorizer().epoch_max(&self.name, turn.now.wall);
        most.saturating_sub(begins_at.since(turn.now.boot))
    }

    /// The term of an epoch that begins at `begins_at`.
    fn term<A: Authorizer>(&mut self, turn: &Turn<'_, A>, begins_at: Instant) -> Term {
        let most = turn.service.authorizer().epoch_max(&self.name, turn.now.wall);
        let len = self.schedule.epoch(most, &mut self.jitter);
        let len = len.min(self.most(turn, begins_at)).max(EPOCH_MIN);
        Term { announce_at: begins_at + (len - Schedule::lead(len)), ends_at: begins_at + len }
    }

    /// Puts the next key into the catalog, whose turn comes at `swap_at`.
    fn announce<A: Authorizer>(
        &mut self,
        turn: &mut Turn<'_, A>,
        swap_at: Instant,
    ) -> Result<(), CatalogError> {
        let term = self.term(turn, swap_at);
        let secret = (turn.fresh)();
        let (epoch, event) = turn.service.announce(turn.now, &self.name, &secret, swap_at, term)?;
        turn.events.push(event);
        self.phase = Phase::Announced { next: Next { epoch, secret } };
        Ok(())
    }

    /// Puts a fresh key into the catalog in place of what is announced, whose turn is now.
    fn replace<A: Authorizer>(&mut self, turn: &mut Turn<'_, A>) -> Result<(), CatalogError> {
        let boot = turn.now.boot;
        let term = self.term(turn, boot);
        let secret = (turn.fresh)();
        let (epoch, event) = turn.service.replace(turn.now, &self.name, &secret, term)?;
        turn.events.push(event);
        self.phase = Phase::Announced { next: Next { epoch, secret } };
        self.swap(boot, boot);
        Ok(())
    }

    /// The turn of what is announced has come.
    fn swap(&mut self, now: Instant, due: Instant) {
        let steady = Phase::Steady { is_last: false };
        self.phase = match core::mem::replace(&mut self.phase, steady) {
            Phase::Announced { next } => {
                Phase::Swapping { next, swap: Swap::new(self.way, now, due) }
            }
            other => other,
        };
    }
}
