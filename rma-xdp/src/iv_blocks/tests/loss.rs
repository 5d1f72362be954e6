//! Marks that are lost or cannot be reached, and what hosts are told then.

use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::*;

const SECOND: u64 = 1_000_000_000;
const END: u64 = NOW + 3600 * SECOND;
/// As [`CounterConfig::default`] has it.
const DEFAULT_LEN: u64 = 1 << 34;

fn default_store(scratch: &Scratch, clock: fn() -> Option<u64>) -> Store {
    Store::open(scratch.path().to_owned(), WallClock(clock), DEFAULT_LEN).unwrap()
}

fn open_unnamed(dir: &Path, clock: fn() -> Option<u64>) -> Result<IvBlocks, CounterError> {
    let opened = IvBlocks::open_in(Ok(dir.to_owned()), false, WallClock(clock), LEN, 0);
    opened.map(|(counter, _)| counter)
}

/// Runs on a thread that may do no more than the files' modes say, also where the tests run as
/// root.
fn without_privileges<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).unwrap();
        run()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_mark_that_is_lost_under_a_right_clock_repeats_nothing_however_fast_hosts_were_restarted() {
    let scratch = Scratch::new();
    let clocks: [fn() -> Option<u64>; 3] =
        [|| Some(NOW), || Some(NOW + SECOND), || Some(NOW + 2 * SECOND)];
    for (clock, at) in clocks.into_iter().zip([0, SECOND, 2 * SECOND]) {
        let block = default_store(&scratch, clock).reserve(0).unwrap();
        assert_eq!(block, CounterBlock::new(NOW + at, NOW + at + FIRST_LEN));
    }
    fs::remove_file(mark_of(&scratch)).unwrap();
    let after = default_store(&scratch, || Some(NOW + 3 * SECOND)).reserve(0).unwrap();
    assert_eq!(after.first(), NOW + 3 * SECOND);
}

#[test]
fn two_directories_under_one_right_clock_share_no_value() {
    let (one, other) = (Scratch::new(), Scratch::new());
    // At once, which is more often than hosts may be opened for long.
    let [.., last] = [(); 3].map(|()| default_store(&one, today).reserve(0).unwrap());
    let next = default_store(&other, || Some(NOW + SECOND)).reserve(0).unwrap();
    assert!(last.end() < next.first(), "{last:?} {next:?}");
}

#[test]
fn later_blocks_grow_with_the_time_that_has_passed_and_stay_behind_the_clock() {
    let scratch = Scratch::new();
    let first = default_store(&scratch, today).reserve(0).unwrap();
    let next = |clock, after| default_store(&scratch, clock).reserve_next(after, || false).unwrap();
    let second = next(|| Some(NOW + 13 * SECOND), first.end());
    assert_eq!(second, CounterBlock::new(first.end(), NOW + 13 * SECOND));
    let third = next(|| Some(END), second.end());
    assert_eq!(third, CounterBlock::new(END - DEFAULT_LEN, END));
    // No room below the clock, or no clock: as little as possible ahead.
    for (clock, nth) in [(yesterday as fn() -> _, 0), (unset, 1), (|| Some(END), 2)] {
        let begin = END + nth * FIRST_LEN;
        assert_eq!(next(clock, begin), CounterBlock::new(begin, begin + FIRST_LEN));
    }
}

#[test]
fn a_host_whose_mark_is_lost_or_set_back_while_it_runs_goes_on_above_what_it_had() {
    let scratch = Scratch::new();
    let store = store(&scratch, today);
    let after = store.reserve(NOW + DAY).unwrap().end();
    fs::remove_file(mark_of(&scratch)).unwrap();
    let after =
        store.reserve_next(after, || false).map(|block| (block.first(), block.end())).unwrap();
    assert_eq!(after, (NOW + DAY + LEN, NOW + DAY + 2 * LEN));
    fs::write(mark_of(&scratch), render(7)).unwrap();
    assert_eq!(store.reserve_next(after.1, || false).unwrap().first(), NOW + DAY + 2 * LEN);
    // Nothing is known of what others had.
    fs::remove_file(mark_of(&scratch)).unwrap();
    let error = super::store(&scratch, unset).reserve_next(after.1, || false).unwrap_err();
    assert!(matches!(error, CounterError::NoClock), "{error}");
}

#[test]
fn a_mark_far_ahead_of_the_clock_is_reported_until_the_clock_has_passed_it() {
    let scratch = Scratch::new();
    drop(IvBlocks::open(config(scratch.path(), tomorrow), 0, User::this(false)).unwrap());
    let said = IvBlocks::open(config(scratch.path(), today), 0, User::this(false))
        .unwrap()
        .0
        .fallback()
        .unwrap();
    // NOW is 2026-02-16, and both the first host and this one have begun on the day after.
    for part in [mark_of(&scratch).to_str().unwrap(), "2026-02-17 00:00:01 UTC", "86400 s ahead"] {
        assert!(said.contains(part), "{said}");
    }
    let said = IvBlocks::open(config(scratch.path(), unset), 0, User::this(false))
        .unwrap()
        .0
        .fallback()
        .unwrap();
    assert!(said.contains("clock is not set"), "{said}");
    let (counter, _) =
        IvBlocks::open(config(scratch.path(), || Some(NOW + 2 * DAY)), 0, User::this(false))
            .unwrap();
    assert_eq!(counter.fallback(), None);
}

#[test]
fn moments_are_dates() {
    let text = |seconds: u64| Moment(seconds * SECOND).to_string();
    assert_eq!(text(0), "1970-01-01 00:00:00 UTC");
    assert_eq!(text(951_827_696), "2000-02-29 12:34:56 UTC");
    assert_eq!(text(1_735_689_599), "2024-12-31 23:59:59 UTC");
    assert_eq!(text(1_735_689_600), "2025-01-01 00:00:00 UTC");
    assert_eq!(text(4_107_542_400), "2100-03-01 00:00:00 UTC");
    assert_eq!(Moment(1).to_string(), "1970-01-01 00:00:01 UTC");
    assert_eq!(Moment(u64::MAX).to_string(), "2554-07-21 23:34:34 UTC");
}

#[test]
fn a_damaged_mark_is_shown_with_what_it_may_have_been_and_what_makes_a_new_one_safe() {
    let scratch = Scratch::new();
    let store = store(&scratch, today);
    drop(store.reserve(0).unwrap());
    let whole = fs::read(mark_of(&scratch)).unwrap();
    let mark = NOW + LEN;
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(mark_of(&scratch), &flipped).unwrap();
        let error = store.reserve(0).unwrap_err();
        let CounterError::Damaged { mark: Some(maybe), .. } = error else { panic!("{error}") };
        assert!(maybe >= mark, "{error}");
    }
    let text = store.reserve(0).unwrap_err().to_string();
    for part in ["2026-02-16 00:00:01 UTC", &mark.to_string(), "nic.counter_start", "new keys"] {
        assert!(text.contains(part), "{text}");
    }
    // The next step that the error names.
    fs::remove_file(mark_of(&scratch)).unwrap();
    let again = store.reserve(mark).unwrap();
    assert_eq!(again.first(), mark);
}

#[test]
fn a_mark_that_this_user_cannot_reach_or_move_is_an_error_and_never_the_clock() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("state/1rma");
    drop(open_unnamed(&dir, today).unwrap());
    let (parent, mark) = (scratch.path().join("state"), dir.join("counter"));
    let fails = || without_privileges(|| open_unnamed(&dir, today).unwrap_err());
    for (path, mode) in [(&mark, 0o600), (&dir, 0o700), (&parent, 0o755)] {
        set_mode(path, 0);
        let error = fails();
        assert!(matches!(error, CounterError::Unreadable { .. }), "{path:?}: {error}");
        let text = error.to_string();
        assert!(text.contains("nic.counter_start") && text.contains("ermission"), "{text}");
        set_mode(path, mode);
    }
    // As on a file system that is read-only.
    set_mode(&dir, 0o555);
    let text = fails().to_string();
    for part in [&format!("is {}, which is 2026-02-16", NOW + LEN), "nic.counter_start"] {
        assert!(text.contains(part), "{text}");
    }
    // There is no mark. There may have been one.
    set_mode(&dir, 0o700);
    fs::remove_file(&mark).unwrap();
    set_mode(&dir, 0o555);
    assert!(matches!(fails(), CounterError::Unusable { .. }));
    set_mode(&dir, 0o700);
    // There is no directory.
    fs::remove_dir_all(&dir).unwrap();
    set_mode(&parent, 0);
    assert!(matches!(fails(), CounterError::Unreadable { .. }), "it may be there");
    set_mode(&parent, 0o555);
    let counter = without_privileges(|| open_unnamed(&dir, today).unwrap());
    assert!(matches!(counter.source(), CounterSource::WallClock { .. }));
    set_mode(&parent, 0o755);
}

#[test]
fn a_directory_that_was_moved_to_a_disk_that_is_not_there_is_an_error_and_never_the_clock() {
    let scratch = Scratch::new();
    for link in ["state/1rma", "state"] {
        fs::create_dir_all(scratch.path().join(link).parent().unwrap()).unwrap();
        let link = scratch.path().join(link);
        symlink(scratch.path().join("not/mounted"), &link).unwrap();
        let error = open_unnamed(&scratch.path().join("state/1rma"), today).unwrap_err();
        assert!(matches!(error, CounterError::Unusable { .. }), "{error}");
        fs::remove_file(&link).unwrap();
        let _ = fs::remove_dir(scratch.path().join("state"));
    }
}

#[test]
fn a_start_that_neither_a_mark_nor_the_clock_confirms_is_refused() {
    let open = |clock, floor| {
        let dir = Err(CounterError::NoDirectory);
        IvBlocks::open_in(dir, false, WallClock(clock), LEN, floor).map(|(_, block)| block)
    };
    for (clock, start) in [(unset as fn() -> _, 7), (unset, NOW), (today, NOW + 1)] {
        let error = open(clock, start).unwrap_err();
        assert!(matches!(error, CounterError::StartNotKept { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&start.to_string()) && text.contains("XDG_STATE_HOME"), "{text}");
    }
    assert_eq!(open(today, NOW - 1).unwrap(), CounterBlock::new(NOW, u64::MAX));
}

#[test]
fn a_host_that_waits_for_another_to_reserve_is_dropped_at_once() {
    let scratch = Scratch::new();
    let config = CounterConfig { block_len: 4, ..config(scratch.path(), today) };
    let (counter, block) = IvBlocks::open(config, 0, User::this(false)).unwrap();
    let mut sealing = Sealing::new(&block);
    let lock = fs::File::open(scratch.path().join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let clock = TscClock::new();
    let _ = [sealing.seal(), sealing.seal()];
    // Until the thread is sure to wait.
    until(|| {
        counter.supply().turn(sealing.nic());
        clock.now().as_nanos() > 100_000_000
    });
    let before = clock.now();
    drop(counter);
    let took = clock.now().since(before);
    // The thread itself would try for longer.
    assert!(took < store::PATIENCE / 2, "{took:?}");
}
