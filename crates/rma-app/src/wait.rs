//! Waiting, in one way for all that an engine gives: completions, events, outcomes of calls,
//! messages, and set-ups of connections.
//!
//! A thread looks at what it waits for ([`Look`]). While there is nothing, it spins, then yields,
//! then sleeps, as its [`IdlePolicy`] says. Whoever has an inline engine turns that between two
//! looks, and never sleeps.
//!
//! # Why no wake-up is lost
//!
//! The engine rings only for threads that have said that they sleep. So a thread says so, looks
//! once more, and only then sleeps. It is the same look: whatever the thread would do something for
//! keeps it from sleeping. Whether the engine has ended is asked before each look, so what the
//! engine gave before that is found.
//!
//! # Who waits otherwise
//!
//! The thread that polls for futures. It says that it sleeps, and that it does not any longer,
//! under a lock, which others must have while it sleeps; and without the seat it is parked.

use core::time::Duration;

use rma_core::time::Instant;

use crate::{
    error::WaitError,
    home::Home,
    idle::{Idle, IdlePolicy, IdleTracker},
    sleep::{Announced, Sleep},
};

/// The outcome of a look at something.
#[derive(Debug)]
pub enum Look<T> {
    /// It is there.
    Found(T),
    /// It is not, but there was something else to do: the next look may find it.
    Busy,
    /// There was nothing. The engine rings when there is; or it is to be looked for at this time.
    Idle(Option<Instant>),
}

impl<T> Look<T> {
    /// Returns `found` if there is any; otherwise whether there was anything to do.
    pub(crate) fn of(found: Option<T>, work: usize) -> Self {
        match found {
            Some(found) => Self::Found(found),
            None if work > 0 => Self::Busy,
            None => Self::Idle(None),
        }
    }
}

/// Something that a thread can wait for that turns an inline engine: the next completion of a
/// [`Portal`](crate::Portal), the next event of a receive queue, the next outcome of
/// [`Transfers`](crate::Transfers), and what methods such as
/// [`Transfers::outcome_of`](crate::Transfers::outcome_of) return.
pub trait Awaited {
    /// The thing that comes in the end.
    type Found;
    /// The reason why nothing comes.
    type Error: From<WaitError>;

    /// Whether it is there only if the engine of the maker with this home turns.
    fn is_of(&self, home: &dyn Home) -> bool;

    /// Looks for it, and does what there is to do meanwhile.
    ///
    /// # Errors
    /// If it will not come.
    fn look(&mut self) -> Result<Look<Self::Found>, Self::Error>;
}

/// The place where a thread waits: its end of what an engine fills.
pub(crate) trait Place {
    /// Whether the maker with this home made it.
    fn is_of(&self, home: &dyn Home) -> bool;

    /// An error if nothing new can come: the engine is gone, or inline.
    fn hopeless(&self) -> Result<(), WaitError>;

    /// The time of the last look.
    fn looked_at(&self) -> Instant;

    /// When there is something to do though nobody rings.
    fn next_at(&self) -> Option<Instant>;

    /// Returns the idle policy of the thread.
    fn idle(&self) -> IdlePolicy;

    /// Returns what the thread sleeps by, as it is going to. `None` if the engine is inline.
    fn sleep(&mut self) -> Option<Sleep>;
}

/// Something that is looked for at a place.
pub(crate) struct At<'a, P, L> {
    pub(crate) place: &'a mut P,
    pub(crate) look: L,
}

impl<P, L, T, E> Awaited for At<'_, P, L>
where
    P: Place,
    L: FnMut(&mut P) -> Result<Look<T>, E>,
    E: From<WaitError>,
{
    type Found = T;
    type Error = E;

    fn is_of(&self, home: &dyn Home) -> bool {
        self.place.is_of(home)
    }

    fn look(&mut self) -> Result<Look<T>, E> {
        (self.look)(self.place)
    }
}

/// Waits until `look` finds something at `place`, for no longer than `timeout`: `None` if there is
/// nothing by then.
pub(crate) fn wait<P: Place, T, E: From<WaitError>>(
    place: &mut P,
    timeout: Option<Duration>,
    mut look: impl FnMut(&mut P) -> Result<Look<T>, E>,
) -> Result<Option<T>, E> {
    let mut idle = IdleTracker::new(place.idle());
    let mut until = None;
    let mut announced: Option<Announced> = None;
    loop {
        let ended = place.hopeless();
        if let Err(forked @ WaitError::Forked(_)) = ended {
            return Err(forked.into());
        }
        let looked = look(place)?;
        if let Look::Found(found) = looked {
            return Ok(Some(found));
        }
        ended?;
        let now = place.looked_at();
        let until = *until.get_or_insert_with(|| timeout.map(|timeout| now + timeout));
        if until.is_some_and(|until| now >= until) {
            return Ok(None);
        }
        let Look::Idle(look_at) = looked else {
            announced = None;
            idle.busy();
            continue;
        };
        if let Some(announced) = announced.take() {
            let until = [look_at, place.next_at(), until].into_iter().flatten().min();
            announced.sleep(until.map(|at| at.since(now)));
            continue;
        }
        match idle.idle(now) {
            Idle::Spin => core::hint::spin_loop(),
            Idle::Yield => std::thread::yield_now(),
            Idle::Sleep => announced = place.sleep().map(Sleep::announce),
        }
    }
}

/// Waits until `awaited` is there, and lets `turn` turn the engine of the maker with this home
/// meanwhile.
///
/// # Errors
/// If it will not come, or is another maker's.
pub fn wait_turning<A: Awaited>(
    home: &dyn Home,
    mut turn: impl FnMut() -> usize,
    awaited: &mut A,
) -> Result<A::Found, A::Error> {
    if !awaited.is_of(home) {
        return Err(WaitError::AnotherHost.into());
    }
    loop {
        if let Look::Found(found) = awaited.look()? {
            return Ok(found);
        }
        turn();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place at which a thread sleeps at once, and whose engine has ended or not.
    struct Desk {
        sleep: Sleep,
        hopeless: Result<(), WaitError>,
    }

    impl Desk {
        fn new(hopeless: Result<(), WaitError>) -> Self {
            Self { sleep: Sleep::new().unwrap(), hopeless }
        }

        fn is_announced(&self) -> bool {
            self.sleep.bell().doorbell.is_sleeping()
        }
    }

    impl Place for Desk {
        fn is_of(&self, _: &dyn Home) -> bool {
            true
        }

        fn hopeless(&self) -> Result<(), WaitError> {
            self.hopeless
        }

        fn looked_at(&self) -> Instant {
            Instant::ZERO
        }

        fn next_at(&self) -> Option<Instant> {
            None
        }

        fn idle(&self) -> IdlePolicy {
            let at_once = Duration::ZERO;
            IdlePolicy::default().with(|it| (it.spin, it.yield_for) = (at_once, at_once))
        }

        fn sleep(&mut self) -> Option<Sleep> {
            Some(self.sleep.clone())
        }
    }

    #[test]
    fn a_thread_that_has_said_that_it_sleeps_looks_once_more_and_finds_what_has_come() {
        let mut desk = Desk::new(Ok(()));
        // It would sleep for ever.
        let mut looks = Vec::new();
        let found = wait(&mut desk, None, |desk| {
            looks.push(desk.is_announced());
            let found = desk.is_announced().then_some(7);
            Ok::<_, WaitError>(Look::of(found, 0))
        });
        assert_eq!((found, looks), (Ok(Some(7)), vec![false, true]));
        assert!(!desk.is_announced());
    }

    #[test]
    fn a_thread_that_had_something_to_do_says_anew_that_it_sleeps() {
        let mut desk = Desk::new(Ok(()));
        let mut looks = Vec::new();
        let ended = wait(&mut desk, None, |desk| {
            looks.push(desk.is_announced());
            match looks.len() {
                2 => Ok(Look::<()>::Busy),
                4 => {
                    // Somebody rings before it sleeps.
                    desk.sleep.rouse();
                    Ok(Look::Idle(None))
                }
                5 => Err(WaitError::NothingOutstanding),
                _ => Ok(Look::Idle(None)),
            }
        });
        assert_eq!(ended, Err(WaitError::NothingOutstanding));
        assert_eq!(looks, [false, true, false, true, false]);
    }

    #[test]
    fn a_thing_that_came_before_the_engine_ended_is_found_and_nothing_else_is_waited_for() {
        let mut desk = Desk::new(Err(WaitError::EngineGone));
        let mut left = Some(1);
        let mut look = |_: &mut Desk| Ok(Look::of(left.take(), 0));
        assert_eq!(wait(&mut desk, None, &mut look), Ok(Some(1)));
        assert_eq!(wait(&mut desk, None, &mut look), Err(WaitError::EngineGone));
    }

    #[test]
    fn no_time_is_enough_for_one_look() {
        let mut desk = Desk::new(Ok(()));
        let mut look = |_: &mut Desk| Ok::<Look<()>, WaitError>(Look::Idle(None));
        assert_eq!(wait(&mut desk, Some(Duration::ZERO), &mut look), Ok(None));
    }
}
