//! The keys of one client for one region: two keys at most, which of them it goes by, and what it
//! concludes from how its ops end (§5.2, §7.3).
//!
//! A REMOTE_AUTHENTICATION_FAILURE is how a client learns that a key has changed, and anybody who
//! sees a request can forge one. So no key is dropped because of it: a client that dropped the
//! present key for a forged notice while the next was announced had nothing until the swap. It
//! tries the other key, then asks the service, then tries again what it has.
//!
//! It fetches nothing itself: [`KeyRing::due`] says when it wants to, [`KeyRing::handle_answer`]
//! takes what came. Time is an argument, and it draws no random numbers but from its caller.
//!
//! Invariants: keys never go back: once something came that was sealed under one, no earlier key of
//! that life is taken or used any longer. A forged notice costs an op two retries at most.

use core::time::Duration;

use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    grant::Grant,
    op::{OpStatus, OpType},
    region::RegionId,
    time::Instant,
};

use crate::{
    epoch::Epoch,
    evidence::Evidence,
    jitter::Jitter,
    limits::{
        CHECK_MAX, CHECK_MIN, CHECK_SPREAD, DENIED_FOR, FETCH_RETRY_MIN, SILENCE, SPURIOUS_HALVED,
        SPURIOUS_MAX, SPURIOUS_MIN, STARTS_FOR,
    },
    message::reply::{Answer, EpochKeys, Granted},
    secret::GrantedKey,
    time::WallTime,
};

/// A grant, and how long it is good for.
#[derive(Clone, Copy, Debug)]
pub struct KeyedGrant {
    /// The permission.
    pub grant: Grant,
    /// The epoch of its key: what [`KeyRing::on_outcome`] is told.
    pub epoch: Epoch,
    /// Until when the service has given it. Afterwards it works until the region's rotator acts.
    pub expires: Instant,
}

/// The holder of a ring's keys: a process, and its host's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The addresses, at most one of each family.
    pub initiators: LocalAddresses,
    /// The process.
    pub pid: Pid,
}

/// The reason why there is no key to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GiveUp {
    /// There is no such region, or this client may not have it so.
    #[error("the service gives no keys of this region; ask its owner for a rule that allows it")]
    Denied,
    /// This host has no address of the region's family.
    #[error("the region's host has no address of this host's family; give this host one of its")]
    NoAddressOfFamily,
    /// The client's certificate has ended, as the service sees the time.
    #[error("this client's certificate has ended: the service's clock shows {seen}; renew it")]
    CertificateEnded {
        /// The service's present time.
        seen: WallTime,
    },
    /// The service takes what this client asks for no request, or it is of another version.
    #[error("the service does not understand what is asked; update the older of both")]
    NotUnderstood,
    /// The call has had its fetches, and has not got on.
    #[error(
        "keys were refused after {fetches} fetches: the owner has lost them, or somebody forges"
    )]
    Fetches {
        /// How many.
        fetches: u32,
    },
}

/// The next step for an op that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is not about keys: what ended so, ended so.
    Pass,
    /// Again, at once, with what [`KeyRing::grant`] gives now.
    Retry,
    /// Again, when [`KeyRing::standing`] is ready.
    Wait,
    /// There is no key to go on with.
    GiveUp(GiveUp),
}

/// Whether a ring has a key to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has.
    Ready,
    /// It will, or will know that it has none, when the service has answered.
    Waiting,
    /// It has none, and knows why. Remembered for a second.
    GaveUp(GiveUp),
}

/// A ring's wish of the service, the most urgent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// To hear of the next key, or whether an owner that is silent has other keys.
    News,
    /// To know if the keys that were refused are the right ones, as they were when it last asked
    /// that.
    Again,
    /// A key, as it has none.
    Keys,
    /// To know if the keys that were refused are the right ones.
    Suspect,
}

/// The news in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Another key.
    New,
    /// Nothing that it did not have.
    Nothing,
    /// Nothing, although its keys were refused: a notice was forged, or the key is being changed.
    Spurious,
    /// That there are no keys for it.
    NoKeys,
}

/// Whether all keys of a ring were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    None,
    /// They were, and the service has not been asked since.
    New,
    /// The service has been asked since.
    Asked,
}

/// A key that a ring holds.
#[derive(Debug)]
struct Held {
    epoch: Epoch,
    keys: Vec<(OpType, GrantedKey)>,
    expires: Instant,
    /// Whether it was refused since something came that was sealed under either key.
    is_refused: bool,
}

/// The place of the region, and the holder that the keys are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    responder: HostAddr,
    region: RegionId,
    region_len: u64,
    initiator: HostAddr,
    pid: Pid,
}

/// The keys of one region for some types of op.
#[derive(Debug)]
pub struct KeyRing {
    place: Option<Place>,
    /// The present key and the next, as the service sees it; at most two.
    keys: Vec<Held>,
    /// The index in `keys` of the one to go by.
    preferred: usize,
    /// The latest epoch that its responder is known to have gone by.
    proven: Option<Epoch>,
    suspicion: Suspicion,
    /// When an answer last brought nothing although keys were refused, and how long it is not asked
    /// about such keys after that.
    spurious: Option<(Instant, Duration)>,
    /// When to ask for news.
    refresh_at: Option<Instant>,
    /// TIMEOUTs since something was heard.
    timeouts: u32,
    /// When to check if the silence is one of other keys.
    check_at: Option<Instant>,
    /// No check before, and how long after it the next.
    checks: (Instant, Duration),
    /// Whether somebody wants keys of it, and none has been asked for.
    is_wanted: bool,
    gave_up: Option<(GiveUp, Instant)>,
    /// When the connection to the service was lost under keys of it, if none have come since, and
    /// how often it has denied them after that.
    lost: Option<(Instant, u32)>,
    /// Counts what its holder has to look at.
    revision: u64,
    jitter: Jitter,
}

impl KeyRing {
    /// A ring without keys. `seed` is what random parts of its waiting times begin with.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            place: None,
            keys: Vec::with_capacity(2),
            preferred: 0,
            proven: None,
            suspicion: Suspicion::None,
            spurious: None,
            refresh_at: None,
            timeouts: 0,
            check_at: None,
            checks: (Instant::ZERO, CHECK_MIN),
            is_wanted: false,
            gave_up: None,
            lost: None,
            revision: 0,
            jitter: Jitter(seed),
        }
    }

    /// The grant to go by for ops of this type. `None` if the ring has none, or has no key for such
    /// ops; see [`KeyRing::standing`].
    #[must_use]
    pub fn grant(&self, op_type: OpType) -> Option<KeyedGrant> {
        let (place, held) = (self.place?, self.keys.get(self.preferred)?);
        let (_, key) = held.keys.iter().find(|(it, _)| *it == op_type)?;
        let Place { responder, region, region_len, initiator, pid } = place;
        let key = key.derived_key();
        let grant = Grant { responder, region, region_len, initiator, pid, op_type, key };
        Some(KeyedGrant { grant, epoch: held.epoch, expires: held.expires })
    }

    /// Whether there is a key to go by. Where there is none, one is wanted from now on.
    pub fn standing(&mut self, now: Instant) -> Standing {
        match self.gave_up {
            Some((why, until)) if now < until && !self.is_ready() && !self.may_start(now) => {
                Standing::GaveUp(why)
            }
            _ if self.is_ready() => Standing::Ready,
            _ => {
                self.is_wanted = true;
                Standing::Waiting
            }
        }
    }

    /// Whether what the service denies may be denied for a moment alone, as it has started again
    /// and its regions are not published yet.
    fn may_start(&self, now: Instant) -> bool {
        let is_denied = matches!(self.gave_up, Some((GiveUp::Denied, _)));
        is_denied && self.lost.is_some_and(|(at, _)| now.since(at) < STARTS_FOR)
    }

    fn is_ready(&self) -> bool {
        !self.keys.is_empty() && self.suspicion == Suspicion::None
    }

    /// Changes whenever [`KeyRing::grant`] or [`KeyRing::standing`] may answer something else, time
    /// aside.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The latest epoch that it holds a key of.
    #[must_use]
    pub fn have(&self) -> Option<Epoch> {
        self.keys.last().map(|it| it.epoch)
    }

    /// Returns its wish of the service, and the time from which it has it.
    #[must_use]
    pub fn due(&self) -> Option<(Want, Instant)> {
        match self.suspicion {
            Suspicion::New => {
                let again = self.spurious.map(|(since, wait)| (Want::Again, since + wait));
                return again.or(Some((Want::Suspect, Instant::ZERO)));
            }
            Suspicion::Asked => return None,
            Suspicion::None => {}
        }
        if self.keys.is_empty() {
            let not_before = self.gave_up.map_or(Instant::ZERO, |(_, until)| until);
            return self.is_wanted.then_some((Want::Keys, not_before));
        }
        let news = [self.refresh_at, self.check_at].into_iter().flatten().min();
        news.map(|at| (Want::News, at))
    }

    /// An op under the key of `epoch` has ended so: what is to become of it.
    pub fn on_outcome(&mut self, now: Instant, epoch: Epoch, status: OpStatus) -> Verdict {
        let at = self.keys.iter().position(|it| it.epoch == epoch);
        match Evidence::of(status) {
            Evidence::Holds => {
                self.hear(at);
                Verdict::Pass
            }
            Evidence::Refused => self.doubt(now, at),
            Evidence::Silence if at.is_none() => self.go_on(now),
            Evidence::Silence => {
                self.timeouts = self.timeouts.saturating_add(1);
                if self.timeouts >= SILENCE && self.check_at.is_none() {
                    let (not_before, _) = self.checks;
                    self.check_at = Some(now.max(not_before) + self.jitter.part_of(CHECK_SPREAD));
                }
                Verdict::Pass
            }
            Evidence::Unsent => Verdict::Pass,
        }
    }

    /// The connection to the service was lost: it may have started again, with other keys.
    pub fn handle_lost(&mut self, now: Instant) {
        if !self.keys.is_empty() {
            self.lost = Some((now, 0));
        }
        if !self.keys.is_empty() && self.check_at.is_none() {
            self.check_at = Some(now.max(self.checks.0) + self.jitter.part_of(CHECK_SPREAD));
        }
    }

    /// Something came that was sealed under a key.
    fn hear(&mut self, at: Option<usize>) {
        (self.timeouts, self.check_at) = (0, None);
        self.checks = (Instant::ZERO, CHECK_MIN);
        let Some(at) = at else { return };
        let is_news = at != self.preferred || self.suspicion != Suspicion::None || at > 0;
        self.suspicion = Suspicion::None;
        self.keys.drain(..at);
        self.keys.iter_mut().for_each(|it| it.is_refused = false);
        self.preferred = 0;
        self.proven = self.keys.first().map(|it| it.epoch);
        self.revision += u64::from(is_news);
    }

    //= 1rma#4.2-recovery
    //= type=deviation
    /// A key was refused, honestly or not.
    fn doubt(&mut self, now: Instant, at: Option<usize>) -> Verdict {
        let Some(at) = at else { return self.go_on(now) };
        self.keys[at].is_refused = true;
        if at == self.preferred {
            if let Some(other) = self.keys.iter().position(|it| !it.is_refused) {
                self.preferred = other;
                self.revision += 1;
            } else if self.suspicion == Suspicion::None {
                self.suspicion = Suspicion::New;
                self.revision += 1;
            }
        }
        self.go_on(now)
    }

    fn go_on(&mut self, now: Instant) -> Verdict {
        match self.standing(now) {
            Standing::Ready => Verdict::Retry,
            Standing::Waiting => Verdict::Wait,
            Standing::GaveUp(why) => Verdict::GiveUp(why),
        }
    }

    /// The service is being asked.
    pub fn ask(&mut self) {
        if self.suspicion == Suspicion::New {
            self.suspicion = Suspicion::Asked;
        }
        (self.refresh_at, self.check_at, self.is_wanted) = (None, None, false);
    }

    /// The service was asked, and has not answered: it must be asked again.
    pub fn unask(&mut self, now: Instant) {
        if self.suspicion == Suspicion::Asked {
            self.suspicion = Suspicion::New;
        }
        self.is_wanted |= self.keys.is_empty();
        self.refresh_at = self.refresh_at.or_else(|| (!self.keys.is_empty()).then_some(now));
    }

    /// Takes what the service has answered.
    pub fn handle_answer(&mut self, now: Instant, answer: Answer, holder: &Holder) -> Learned {
        match answer {
            Answer::Granted(granted) => self.take(now, granted, holder),
            Answer::Current { lifetime, refresh } => {
                if let Some(latest) = self.keys.last_mut() {
                    latest.expires = now + lifetime;
                }
                self.refresh_at = Some(now + refresh);
                self.learn_nothing(now)
            }
            Answer::Denied => self.give_up(now, GiveUp::Denied),
            Answer::NoAddressOfFamily => self.give_up(now, GiveUp::NoAddressOfFamily),
        }
    }

    /// The service will not give keys, for this reason. Those that it has stay: they work until the
    /// region's rotator acts.
    pub fn give_up(&mut self, now: Instant, why: GiveUp) -> Learned {
        self.gave_up = Some((why, now + DENIED_FOR));
        let mut again = CHECK_MAX;
        if self.may_start(now)
            && let Some((_, denials)) = &mut self.lost
        {
            let most = (FETCH_RETRY_MIN * 2_u32.pow((*denials).min(16))).min(DENIED_FOR);
            *denials += 1;
            again = self.jitter.part_of(most);
            self.gave_up = Some((why, now + again));
        }
        self.refresh_at = (!self.keys.is_empty()).then_some(now + again);
        if self.suspicion == Suspicion::Asked {
            // A key that both have refused is of no use.
            self.suspicion = Suspicion::None;
            self.keys.clear();
            self.preferred = 0;
        }
        self.revision += 1;
        Learned::NoKeys
    }

    /// Forgets all keys: its holder is another process now.
    pub fn forget(&mut self) {
        let is_wanted = !self.keys.is_empty() || self.is_wanted;
        *self = Self { is_wanted, revision: self.revision + 1, ..Self::new(self.jitter.0) };
    }

    fn take(&mut self, now: Instant, granted: Granted, holder: &Holder) -> Learned {
        let Granted { responder, region, region_len, present, refresh, next } = granted;
        let Some(initiator) = holder.initiators.toward(responder) else {
            return self.give_up(now, GiveUp::NoAddressOfFamily);
        };
        self.refresh_at = Some(now + refresh);
        let pid = holder.pid;
        for (op_type, key) in
            [Some(&present), next.as_ref()].into_iter().flatten().flat_map(|it| &it.keys)
        {
            let (op_type, key) = (*op_type, key.derived_key());
            let _ = Grant { responder, region, region_len, initiator, pid, op_type, key }.logged();
        }
        let place = Place { responder, region, region_len, initiator, pid: holder.pid };
        let latest = next.as_ref().map_or(present.epoch, |it| it.epoch);
        if self.have().is_some_and(|have| is_before(latest, have)) {
            // It came late.
            return self.learn_nothing(now);
        }
        let is_new = |epoch: Epoch, keys: &[Held]| !keys.iter().any(|it| it.epoch == epoch);
        let brings = is_new(latest, &self.keys) || is_new(present.epoch, &self.keys);
        let was = core::mem::take(&mut self.keys);
        for EpochKeys { epoch, lifetime, keys } in [Some(present), next].into_iter().flatten() {
            // Keys never go back.
            if self.proven.is_none_or(|proven| !is_before(epoch, proven)) {
                let is_refused = was.iter().any(|it| it.epoch == epoch && it.is_refused);
                self.keys.push(Held { epoch, keys, expires: now + lifetime, is_refused });
            }
        }
        let brings = self.place.replace(place) != Some(place) || brings;
        let ready = self.keys.iter().position(|it| !it.is_refused);
        self.preferred = ready.unwrap_or(0);
        (self.gave_up, self.lost) = (None, None);
        match ready {
            Some(_) if brings => {
                self.suspicion = Suspicion::None;
                self.revision += 1;
                Learned::New
            }
            _ => self.learn_nothing(now),
        }
    }

    fn learn_nothing(&mut self, now: Instant) -> Learned {
        if self.timeouts >= SILENCE {
            let (_, wait) = self.checks;
            self.checks = (now + wait, (wait * 2).min(CHECK_MAX));
        }
        match self.suspicion {
            // That it has what there is, nobody can tell who has nothing.
            _ if self.keys.is_empty() => self.give_up(now, GiveUp::NotUnderstood),
            Suspicion::Asked => {
                self.suspicion = Suspicion::None;
                self.keys.iter_mut().for_each(|it| it.is_refused = false);
                self.preferred = 0;
                self.revision += 1;
                self.spurious = Some((now, self.spurious_wait(now)));
                Learned::Spurious
            }
            // Those who were refused after the service was asked are to ask again.
            Suspicion::New | Suspicion::None => Learned::Nothing,
        }
    }

    /// How long to wait after another answer that brought nothing: twice as long as after the one
    /// before, halved for each time that has passed without.
    fn spurious_wait(&self, now: Instant) -> Duration {
        let Some((at, wait)) = self.spurious else { return SPURIOUS_MIN };
        let times = now.since(at).as_nanos() / SPURIOUS_HALVED.as_nanos();
        let wait = wait * 2 / 2_u32.pow(times.min(16) as u32);
        wait.clamp(SPURIOUS_MIN, SPURIOUS_MAX)
    }
}

/// Whether one epoch is earlier than another: within one life alone.
fn is_before(epoch: Epoch, other: Epoch) -> bool {
    epoch.life == other.life && epoch.number < other.number
}
