//! Ops in a row that fail: how long that goes on before a run is given up, and what is told of it
//! if it does not.
//!
//! A machine that is moved, a debugger, a busy core: either side may stand still for a moment, and
//! everything that is under way then fails, be it one op or a hundred. So failures that pass are
//! counted by time. Those that will not pass, as of a wrong key, are counted one by one.

use core::{fmt, time::Duration};

use rma_core::time::Instant;
use rma_xdp::OpStatus;

use crate::error::{PairError, hint};

/// How long ops may fail in a row, of what may pass. Shorter: a pause of the other machine ends a
/// run. Longer: who has mistyped an address waits longer for the message.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same where somebody waits for a run that was interrupted.
const HASTE: Duration = Duration::from_secs(1);

/// The most time that one failure counts for: of a process that stood still itself, for however
/// long, one moment.
const COUNTED_MAX: Duration = Duration::from_millis(500);

/// Ops that may fail in a row of what does not pass.
const FAILURES_MAX: u32 = 50;

/// How long nothing has to succeed to be called a pause: longer than one op that was lost takes.
const PAUSE: Duration = Duration::from_millis(400);

/// The ops of a run that have failed in a row.
#[derive(Clone, Debug)]
pub struct Failures {
    in_row: u32,
    /// For how long, as far as it counts.
    waited: Duration,
    /// How long that may be.
    patience: Duration,
    /// When an op ended last.
    ended: Option<Instant>,
    /// When one succeeded last.
    succeeded: Option<Instant>,
    /// The status of the one that failed last.
    last: Option<OpStatus>,
    pauses: Pauses,
}

/// How often, and for how long, nothing succeeded for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    count: u32,
    longest: Duration,
}

impl Default for Failures {
    fn default() -> Self {
        let (ended, succeeded, last, pauses) = (None, None, None, Pauses::default());
        Self {
            in_row: 0,
            waited: Duration::ZERO,
            patience: PATIENCE,
            ended,
            succeeded,
            last,
            pauses,
        }
    }
}

impl Failures {
    /// The same patience for ops of a thread of their own.
    pub(crate) fn of_thread(&self) -> Self {
        Self { patience: self.patience, ..Self::default() }
    }

    /// Goes on where the threads of a row have ended: where the one is that waited longest, with
    /// what was told of pauses before. Threads that stood still together did so once.
    pub(crate) fn join<'a>(&mut self, threads: impl Iterator<Item = &'a Self>) {
        let Pauses { mut count, mut longest } = self.pauses;
        let mut of_row = 0;
        for thread in threads {
            of_row = thread.pauses.count.max(of_row);
            longest = longest.max(thread.pauses.longest);
            if thread.waited >= self.waited || of_row == 0 {
                self.clone_from(thread);
            }
        }
        count += of_row;
        self.pauses = Pauses { count, longest };
    }

    /// How long ops may fail in a row.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// From now on ops may fail in a row for so long.
    pub(crate) const fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// From now on less is waited for: somebody wants the program to end.
    pub(crate) fn make_haste(&mut self) {
        self.patience = self.patience.min(HASTE);
    }

    /// An op has ended with OK.
    #[inline]
    pub fn ok(&mut self, now: Instant) {
        if self.in_row > 0 {
            self.over(now);
        }
        (self.ended, self.succeeded) = (Some(now), Some(now));
    }

    #[cold]
    fn over(&mut self, now: Instant) {
        (self.in_row, self.waited) = (0, Duration::ZERO);
        let stood = self.succeeded.map_or(Duration::ZERO, |at| now.since(at));
        if stood >= PAUSE {
            self.pauses.count += 1;
            self.pauses.longest = self.pauses.longest.max(stood);
        }
    }

    /// An op has ended otherwise.
    ///
    /// # Errors
    /// If there is no sense in going on.
    pub fn count(&mut self, status: OpStatus, now: Instant) -> Result<(), PairError> {
        self.count_if(passes(status), status, now)
    }

    /// As [`Self::count`], of what may be over in a moment where the caller is.
    ///
    /// # Errors
    /// If there is no sense in going on.
    pub fn count_passing(&mut self, status: OpStatus, now: Instant) -> Result<(), PairError> {
        self.count_if(true, status, now)
    }

    fn count_if(&mut self, passes: bool, status: OpStatus, now: Instant) -> Result<(), PairError> {
        let gap = self.ended.map_or(Duration::ZERO, |at| now.since(at));
        self.in_row += 1;
        self.waited += gap.min(COUNTED_MAX);
        (self.ended, self.last) = (Some(now), Some(status));
        let is_too_much =
            if passes { self.waited >= self.patience } else { self.in_row >= FAILURES_MAX };
        if is_too_much {
            return Err(PairError::Failing { failures: self.in_row, status, hint: hint(status) });
        }
        Ok(())
    }

    /// The end of a run.
    ///
    /// # Errors
    /// If ops were failing, and for longer than one that was lost does: who was asked has gone.
    pub(crate) fn at_end(&self, now: Instant) -> Result<(), PairError> {
        let stood = self.succeeded.map_or(Duration::ZERO, |at| now.since(at));
        match self.last.filter(|_| self.in_row > 0 && stood >= PAUSE) {
            None => Ok(()),
            Some(status) => {
                let failures = self.in_row;
                Err(PairError::Failing { failures, status, hint: hint(status) })
            }
        }
    }

    /// How often it stood still.
    pub(crate) const fn pauses(&self) -> Pauses {
        self.pauses
    }
}

/// Whether what ends ops like this may be over in a moment, without anybody doing anything.
const fn passes(status: OpStatus) -> bool {
    matches!(status, OpStatus::Timeout | OpStatus::DispatchTimeout | OpStatus::Nack)
}

impl Pauses {
    /// How many there were.
    pub(crate) const fn count(self) -> u32 {
        self.count
    }

    /// Tells of them, if there were any.
    pub(crate) fn say(self) {
        if self.count > 0 {
            crate::line!("  paused    {self}");
        }
    }
}

impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.longest.as_secs_f64();
        match self.count {
            1 => write!(f, "once, for {longest:.1} s: ")?,
            count => write!(f, "{count} times, for up to {longest:.1} s: ")?,
        }
        f.write_str(
            "nothing came back meanwhile, as where a machine or a process stands still; what failed was issued again",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_pause_ends_no_run_however_many_ops_fail_in_it_and_is_told() {
        let mut failures = Failures::default();
        failures.ok(at(1_000));
        for op in 0..500 {
            failures.count(OpStatus::Timeout, at(1_300 + op)).unwrap();
        }
        failures.ok(at(2_000));
        assert_eq!(failures.pauses(), Pauses { count: 1, longest: Duration::from_secs(1) });
        assert!(failures.pauses().to_string().starts_with("once, for 1.0 s"));
    }

    #[test]
    fn a_process_that_stood_still_itself_for_an_hour_goes_on() {
        let mut failures = Failures::default();
        failures.ok(at(0));
        for _ in 0..64 {
            failures.count(OpStatus::Timeout, at(3_600_000)).unwrap();
        }
        failures.ok(at(3_600_001));
        assert_eq!(failures.pauses().count, 1);
    }

    #[test]
    fn one_op_that_was_lost_is_no_pause() {
        let mut failures = Failures::default();
        failures.ok(at(0));
        failures.count(OpStatus::Timeout, at(200)).unwrap();
        failures.ok(at(201));
        assert_eq!(failures.pauses(), Pauses::default());
    }

    #[test]
    fn a_server_that_is_gone_is_given_up_in_time_and_sooner_in_haste() {
        let given_up = |mut failures: Failures| {
            failures.ok(at(0));
            (1..).find(|op| failures.count(OpStatus::Timeout, at(op * 100)).is_err()).unwrap()
        };
        assert_eq!(given_up(Failures::default()), 50);
        let mut hasty = Failures::default();
        hasty.make_haste();
        assert_eq!(given_up(hasty), 10);
    }

    #[test]
    fn a_run_whose_server_was_gone_at_its_end_has_failed_and_one_lost_op_is_none() {
        let mut failures = Failures::default();
        failures.ok(at(1_000));
        failures.count(OpStatus::Timeout, at(1_200)).unwrap();
        assert!(failures.at_end(at(1_250)).is_ok());
        assert!(matches!(failures.at_end(at(1_500)), Err(PairError::Failing { failures: 1, .. })));
        failures.ok(at(1_600));
        assert!(failures.at_end(at(9_000)).is_ok());
    }

    #[test]
    fn failures_that_do_not_pass_are_counted_one_by_one() {
        let mut failures = Failures::default();
        let status = OpStatus::RemoteAuthenticationFailure;
        let given_up = (1..).find(|_| failures.count(status, at(0)).is_err());
        assert_eq!(given_up, Some(FAILURES_MAX));
    }
}
