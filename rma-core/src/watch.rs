//! The portals that a turn of a service looks at: those that are in use, of however many there are.
//!
//! A portal that has a [flag](Flag) is *watched*, looked at in every turn, from when its flag goes
//! up until it has had no command for a while; then its flag is taken down. All others cost a look
//! at a word of flags for 64 of them. A portal without a flag is always watched.
//!
//! Always true: a portal that is served and not watched has its flag down, or the next
//! [`Watch::notice`] finds it up; and it had no command when its flag was taken down.

use rma_shm::Flags;

use crate::{portal::Flag, time::Instant};

/// For how long a portal is watched after its last command. Longer: more portals are looked at in
/// vain. Shorter: an application that issues an op at a time has to raise its flag more often,
/// which takes the word's cache line from all cores that look at it.
const QUIET_NANOS: u64 = 1_000_000;

/// How many portals with flags may be watched for that long. Where there are more, those that were
/// found without a command are not watched any longer. More: turns take longer where many portals
/// are in use and none much. Fewer: as with a shorter time.
const QUIET_MAX: usize = 8;

/// How many flags are taken down in a turn at most, each of which takes a fence: so that no turn is
/// long because many portals have become quiet together.
const LET_GO_MAX: usize = 16;

/// The portals that a turn looks at.
#[derive(Debug)]
pub struct Watch {
    /// Those that are watched, in no order.
    watched: Vec<Watched>,
    /// How many of these have no flag, and are watched always.
    flagless: usize,
    /// A look for each word of flags that portals have theirs in.
    looks: Vec<Look>,
    /// For each of `looks`, which portals the flags are of.
    owners: Vec<Owners>,
}

/// A portal that is looked at in every turn.
#[derive(Clone, Copy, Debug)]
struct Watched {
    portal: u16,
    /// The index of its flag.
    flag: Option<FlagIndex>,
    /// When it last had a command, or began to be watched.
    busy_at: Instant,
}

impl Watched {
    /// Whether it need not be watched any longer, where it has no command now.
    #[inline]
    const fn is_quiet(&self, now: Instant, is_crowded: bool) -> bool {
        let quiet_for = now.nanos_since(self.busy_at);
        self.flag.is_some() && (quiet_for >= QUIET_NANOS || (is_crowded && quiet_for > 0))
    }
}

/// The index of a flag in its word, and of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlagIndex {
    look: u16,
    bit: u16,
}

/// A word of flags. As small as can be: there may be many, and each turn looks at all.
#[derive(Debug)]
struct Look {
    flags: Flags,
    /// The flags of portals that are not watched.
    unwatched: u64,
}

/// The portals whose flags are in a word.
#[derive(Debug)]
struct Owners {
    /// By bit.
    portals: [u16; Flags::COUNT as usize],
    /// The owners that are portals.
    used: u64,
}

impl Watch {
    /// For `portals` portals at most. All memory that it will ever need is allocated here.
    #[must_use]
    pub fn new(portals: usize) -> Self {
        Self {
            watched: Vec::with_capacity(portals),
            flagless: 0,
            // Perhaps no two portals have their flags in one word.
            looks: Vec::with_capacity(portals),
            owners: Vec::with_capacity(portals),
        }
    }

    /// Begins to serve portal number `portal`, which has this flag, and is watched at first:
    /// commands may have come before, and its flag may be up.
    pub fn add(&mut self, portal: u16, flag: Option<&Flag>) {
        let flag = flag.and_then(|flag| self.enter(portal, flag));
        self.flagless += usize::from(flag.is_none());
        self.watched.push(Watched { portal, flag, busy_at: Instant::ZERO });
    }

    /// Notes whose flag it is. `None` if another portal has it: then this one is watched always.
    fn enter(&mut self, portal: u16, flag: &Flag) -> Option<FlagIndex> {
        let known = self.looks.iter().position(|look| look.flags.is(flag.flags()));
        let look = known.unwrap_or_else(|| {
            self.looks.push(Look { flags: flag.flags().clone(), unwatched: 0 });
            self.owners.push(Owners { portals: [0; _], used: 0 });
            self.looks.len() - 1
        });
        let (owners, bit) = (&mut self.owners[look], flag.index());
        if owners.used >> bit & 1 == 1 {
            return None;
        }
        owners.used |= 1 << bit;
        owners.portals[bit as usize] = portal;
        Some(FlagIndex { look: look as u16, bit: bit as u16 })
    }

    /// Looks at portal number `portal` no more, which has this flag. It keeps its number. Again,
    /// for the same portal, this does nothing.
    pub fn forget(&mut self, portal: u16, flag: Option<&Flag>) {
        if let Some(at) = self.watched.iter().position(|it| it.portal == portal) {
            self.flagless -= usize::from(self.watched.swap_remove(at).flag.is_none());
        }
        if let Some(index) = flag.and_then(|flag| self.index_of(portal, flag)) {
            let (look, owners) = self.word(index);
            look.unwatched &= !(1 << index.bit);
            owners.used &= !(1 << index.bit);
            if owners.used == 0 {
                self.drop_word(usize::from(index.look));
            }
        }
    }

    /// Serves portal number `portal` no more, which had this flag. What had number `moved` has its
    /// number now: `portal`, if none has.
    pub fn remove(&mut self, portal: u16, flag: Option<&Flag>, moved: u16) {
        self.forget(portal, flag);
        for watched in &mut self.watched {
            if watched.portal == moved {
                watched.portal = portal;
            }
        }
        for owners in &mut self.owners {
            let used = owners.used;
            let named = owners.portals.iter_mut().enumerate();
            named
                .filter(|(bit, it)| used >> bit & 1 == 1 && **it == moved)
                .for_each(|(_, it)| *it = portal);
        }
    }

    /// Returns the index of the flag of portal number `portal`.
    fn index_of(&self, portal: u16, flag: &Flag) -> Option<FlagIndex> {
        let look = self.looks.iter().position(|look| look.flags.is(flag.flags()))?;
        let (owners, bit) = (&self.owners[look], flag.index());
        let is_its = owners.used >> bit & 1 == 1 && owners.portals[bit as usize] == portal;
        is_its.then_some(FlagIndex { look: look as u16, bit: bit as u16 })
    }

    fn word(&mut self, index: FlagIndex) -> (&mut Look, &mut Owners) {
        let look = usize::from(index.look);
        (&mut self.looks[look], &mut self.owners[look])
    }

    /// Looks no more at word number `word`. The last one gets its number.
    fn drop_word(&mut self, word: usize) {
        self.looks.swap_remove(word);
        self.owners.swap_remove(word);
        let last = self.looks.len();
        for watched in &mut self.watched {
            if let Some(flag) = &mut watched.flag
                && usize::from(flag.look) == last
            {
                flag.look = word as u16;
            }
        }
    }

    /// Watches the portals whose flags have gone up.
    #[inline]
    pub fn notice(&mut self, now: Instant) {
        for (number, look) in self.looks.iter_mut().enumerate() {
            let raised = look.flags.raised() & look.unwatched;
            if raised != 0 {
                look.unwatched &= !raised;
                let owners = &self.owners[number];
                let mut left = raised;
                while left != 0 {
                    let bit = left.trailing_zeros() as u16;
                    left &= left - 1;
                    let portal = owners.portals[usize::from(bit)];
                    let flag = Some(FlagIndex { look: number as u16, bit });
                    self.watched.push(Watched { portal, flag, busy_at: now });
                }
            }
        }
    }

    /// Looks at each portal that is watched, and appends those that `has_command` says have one to
    /// `busy`.
    #[inline]
    pub fn look(
        &mut self,
        now: Instant,
        busy: &mut Vec<u16>,
        mut has_command: impl FnMut(u16) -> bool,
    ) {
        let (is_crowded, mut is_any_quiet) = (self.is_crowded(), false);
        for watched in &mut self.watched {
            if has_command(watched.portal) {
                watched.busy_at = now;
                busy.push(watched.portal);
            } else {
                is_any_quiet |= watched.is_quiet(now, is_crowded);
            }
        }
        if is_any_quiet {
            self.let_go(now, has_command);
        }
    }

    /// Watches those portals no longer that have been without a command for long enough. A command
    /// that came before the flag was down is seen afterwards.
    #[cold]
    fn let_go(&mut self, now: Instant, mut has_command: impl FnMut(u16) -> bool) {
        let is_crowded = self.is_crowded();
        let Self { watched, looks, .. } = self;
        let mut lowered = 0;
        watched.retain(|watched| {
            let Some(FlagIndex { look, bit }) = watched.flag else { return true };
            if lowered == LET_GO_MAX || !watched.is_quiet(now, is_crowded) {
                return true;
            }
            lowered += 1;
            let look = &mut looks[usize::from(look)];
            look.flags.lower(bit.into());
            if has_command(watched.portal) {
                return true;
            }
            look.unwatched |= 1 << bit;
            false
        });
    }

    const fn is_crowded(&self) -> bool {
        self.watched.len() - self.flagless > QUIET_MAX
    }

    /// Whether no flag is up that has not been noticed, and `is_idle` says so of each portal that
    /// is watched.
    #[must_use]
    #[inline]
    pub fn is_idle(&self, mut is_idle: impl FnMut(u16) -> bool) -> bool {
        let unnoticed = |look: &Look| look.flags.raised() & look.unwatched != 0;
        !self.looks.iter().any(unnoticed) && self.watched.iter().all(|it| is_idle(it.portal))
    }
}
