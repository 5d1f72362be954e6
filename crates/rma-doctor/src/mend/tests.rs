//! Journals against a kernel that rounds, refuses, resets the link, and loses power.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::Command,
};

use super::*;

/// A kernel of values, by the names of settings.
#[derive(Debug, Default)]
struct Fake {
    values: BTreeMap<String, Setting>,
    /// Multiples that it makes of an MTU.
    multiple: u32,
    /// Refuses to be told anything.
    refuses: bool,
    /// Takes all and does nothing.
    ignores: bool,
    /// After a set it cannot be asked so often: the link is reset.
    resets: u32,
    is_away: u32,
    /// Loses power before this call, or, with `true`, after it.
    dies: Option<(u32, bool)>,
    calls: u32,
}

impl Fake {
    fn new(values: &[Setting]) -> Self {
        let values = values.iter().map(|it| (it.to_string(), it.clone())).collect();
        Self { values, multiple: 1, ..Self::default() }
    }

    fn value(&self, of: &Setting) -> String {
        self.values[&of.to_string()].value()
    }

    fn step(&mut self, is_after: bool) {
        if !is_after {
            self.calls += 1;
        }
        assert_ne!(self.dies, Some((self.calls, is_after)), "the power is lost");
    }
}

impl Kernel for Fake {
    fn read(&mut self, setting: &Setting) -> Result<Setting, KernelError> {
        self.step(false);
        if self.is_away > 0 {
            self.is_away -= 1;
            return Err(KernelError::NoInterface { name: "eth1".to_owned() });
        }
        let value = self.values.get(&setting.to_string()).cloned().ok_or(KernelError::Without)?;
        self.step(true);
        Ok(value)
    }

    fn set(&mut self, setting: &Setting) -> Result<(), KernelError> {
        self.step(false);
        if self.refuses {
            return Err(std::io::Error::from_raw_os_error(22).into());
        }
        let mut value = setting.clone();
        if let Setting::Mtu { mtu, .. } = &mut value {
            *mtu = mtu.next_multiple_of(self.multiple);
        }
        if !self.ignores {
            self.values.insert(setting.to_string(), value);
        }
        self.is_away = self.resets;
        self.step(true);
        Ok(())
    }
}

thread_local!(static PLACES: Cell<u32> = const { Cell::new(0) });

/// A directory of its own, removed at the end.
struct Scratch(Place);

impl Scratch {
    fn new() -> Self {
        let count = PLACES.replace(PLACES.get() + 1);
        let (process, thread) = (std::process::id(), std::thread::current().id());
        let name = format!("rma-doctor-{process}-{thread:?}-{count}").replace(['(', ')'], "");
        let directory = std::env::temp_dir().join(name).join("doctor");
        let interface = Some(Interface { index: 7, name: "eth1".to_owned() });
        Self(Place { directory, netns: 42, boot: "boot".to_owned(), interface })
    }

    fn files(&self) -> Vec<String> {
        let all = fs::read_dir(&self.0.directory).unwrap();
        let names = all.map(|it| it.unwrap().file_name().into_string().unwrap());
        names.filter(|it| it != "lock").collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(self.0.directory.parent().unwrap());
    }
}

fn mtu(mtu: u32) -> Setting {
    Setting::Mtu { interface: "eth1".to_owned(), mtu }
}

fn lro(on: bool) -> Setting {
    Setting::Feature { interface: "eth1".to_owned(), name: "rx-lro".to_owned(), on }
}

fn wanted(settings: &[Setting]) -> Vec<Wanted> {
    let of = |it: &Setting| Wanted { check: "check".to_owned(), setting: it.clone() };
    settings.iter().map(of).collect()
}

fn words(told: &[Told]) -> Vec<String> {
    told.iter().map(ToString::to_string).collect()
}

#[test]
fn values_are_applied_read_back_undone_in_reverse_and_twice_is_once() {
    let scratch = Scratch::new();
    let place = &scratch.0;
    let mut kernel = Fake::new(&[mtu(9000), lro(true)]);
    let both = wanted(&[lro(false), mtu(3000)]);
    let told = apply(&mut kernel, place, &both).unwrap();
    assert_eq!(
        words(&told),
        ["rx-lro of eth1: on -> off: applied", "MTU of eth1: 9000 -> 3000: applied"]
    );
    let journal = fs::read_to_string(place.path()).unwrap();
    let again = apply(&mut kernel, place, &both).unwrap();
    assert_eq!(words(&again), ["rx-lro of eth1: off already", "MTU of eth1: 3000 already"]);
    assert_eq!(fs::read_to_string(place.path()).unwrap(), journal);
    let undone = undo(&mut kernel, place).unwrap();
    assert_eq!(words(&undone), ["MTU of eth1: 9000 again", "rx-lro of eth1: on again"]);
    assert_eq!((kernel.value(&mtu(0)), kernel.value(&lro(false))), ("9000".into(), "on".into()));
    assert!(scratch.files().is_empty());
    assert_eq!(undo(&mut kernel, place).unwrap(), []);
}

#[test]
fn a_driver_that_rounds_is_told_of_and_undone_by_what_it_made() {
    let scratch = Scratch::new();
    let mut kernel = Fake { multiple: 1024, ..Fake::new(&[mtu(9000)]) };
    let both = wanted(&[mtu(2000)]);
    let told = apply(&mut kernel, &scratch.0, &both).unwrap();
    assert_eq!(words(&told), ["MTU of eth1: 2000: rounded to 2048"]);
    let calls = kernel.calls;
    let again = apply(&mut kernel, &scratch.0, &both).unwrap();
    assert_eq!(words(&again), ["MTU of eth1: 2048 already"]);
    assert_eq!(kernel.calls, calls + 1, "it is read, and not set again");
    kernel.multiple = 1;
    assert_eq!(words(&undo(&mut kernel, &scratch.0).unwrap()), ["MTU of eth1: 9000 again"]);
}

#[test]
fn a_driver_that_refuses_or_does_nothing_leaves_no_journal() {
    for (refuses, why) in [(true, "Invalid argument"), (false, "nothing has changed")] {
        let scratch = Scratch::new();
        let mut kernel = Fake { refuses, ignores: true, ..Fake::new(&[mtu(9000)]) };
        let both = wanted(&[mtu(2000), lro(false)]);
        let told = apply(&mut kernel, &scratch.0, &both).unwrap();
        assert!(told.iter().all(Told::is_failure));
        let told = words(&told);
        assert!(told[0].contains(why), "{told:?}");
        assert!(told[1].ends_with("off: refused: the driver has no such setting"), "{told:?}");
        assert!(scratch.files().is_empty());
    }
}

#[test]
fn a_link_that_is_reset_is_not_read_back_and_can_be_undone_later() {
    let scratch = Scratch::new();
    let mut kernel = Fake { resets: 1, ..Fake::new(&[mtu(9000)]) };
    let told = apply(&mut kernel, &scratch.0, &wanted(&[mtu(2000)])).unwrap();
    assert!(told[0].to_string().contains("cannot be read back"), "{}", told[0]);
    // It is away once more, and what is in the journal stays there.
    kernel.is_away = 1;
    assert!(undo(&mut kernel, &scratch.0).unwrap()[0].is_failure());
    kernel.resets = 0;
    assert_eq!(words(&undo(&mut kernel, &scratch.0).unwrap()), ["MTU of eth1: 9000 again"]);
    // One that refuses to go back is asked again by the next.
    apply(&mut kernel, &scratch.0, &wanted(&[mtu(2000)])).unwrap();
    kernel.refuses = true;
    assert!(undo(&mut kernel, &scratch.0).unwrap()[0].is_failure());
    kernel.refuses = false;
    assert_eq!(words(&undo(&mut kernel, &scratch.0).unwrap()), ["MTU of eth1: 9000 again"]);
}

#[test]
fn a_value_that_somebody_else_has_changed_is_left_and_told() {
    let scratch = Scratch::new();
    let mut kernel = Fake::new(&[mtu(9000), lro(true)]);
    apply(&mut kernel, &scratch.0, &wanted(&[mtu(3000), lro(false)])).unwrap();
    kernel.set(&mtu(1400)).unwrap();
    let told = words(&undo(&mut kernel, &scratch.0).unwrap());
    assert_eq!(told[0], "rx-lro of eth1: on again");
    assert!(told[1].contains("changed it to 1400") && told[1].ends_with("mtu 9000"), "{told:?}");
    assert_eq!(kernel.value(&mtu(0)), "1400");
    // What is applied after that is undone to that.
    apply(&mut kernel, &scratch.0, &wanted(&[mtu(3000)])).unwrap();
    kernel.set(&mtu(1400)).unwrap();
    apply(&mut kernel, &scratch.0, &wanted(&[mtu(2000)])).unwrap();
    assert_eq!(words(&undo(&mut kernel, &scratch.0).unwrap()), ["MTU of eth1: 1400 again"]);
    // And what is applied in two steps, to what was there before both.
    apply(&mut kernel, &scratch.0, &wanted(&[mtu(3000)])).unwrap();
    apply(&mut kernel, &scratch.0, &wanted(&[mtu(2000)])).unwrap();
    assert_eq!(words(&undo(&mut kernel, &scratch.0).unwrap()), ["MTU of eth1: 1400 again"]);
}

/// Each call of `run` to the kernel is the last one, once, before and after it took place.
fn with_power_lost_at_each_step(
    run: impl Fn(&mut Fake, &Place),
    prepare: impl Fn(&mut Fake, &Place),
) {
    for call in 1.. {
        for is_after in [false, true] {
            let scratch = Scratch::new();
            let mut kernel = Fake::new(&[mtu(9000), lro(true)]);
            prepare(&mut kernel, &scratch.0);
            (kernel.dies, kernel.calls) = (Some((call, is_after)), 0);
            let died = catch_unwind(AssertUnwindSafe(|| run(&mut kernel, &scratch.0))).is_err();
            kernel.dies = None;
            if !died {
                assert!(call > 4, "it is asked more often than that");
                return;
            }
            let told = undo(&mut kernel, &scratch.0).unwrap();
            assert!(told.iter().all(|it| it.outcome == Outcome::Undone), "{call}: {told:?}");
            let now = (kernel.value(&mtu(0)), kernel.value(&lro(false)));
            assert_eq!(now, ("9000".to_owned(), "on".to_owned()), "{call} {is_after}");
            assert!(scratch.files().is_empty());
        }
    }
}

#[test]
fn power_that_is_lost_at_any_step_of_applying_leaves_what_can_be_undone() {
    let both = wanted(&[lro(false), mtu(3000)]);
    let run = |kernel: &mut Fake, place: &Place| drop(apply(kernel, place, &both));
    with_power_lost_at_each_step(run, |_, _| ());
}

#[test]
fn power_that_is_lost_at_any_step_of_undoing_leaves_the_rest_to_undo() {
    let both = wanted(&[lro(false), mtu(3000)]);
    let run = |kernel: &mut Fake, place: &Place| drop(undo(kernel, place));
    with_power_lost_at_each_step(run, |kernel, place| drop(apply(kernel, place, &both)));
}

#[test]
fn a_file_that_was_left_half_written_is_written_anew() {
    let scratch = Scratch::new();
    let mut kernel = Fake::new(&[mtu(9000)]);
    drop(scratch.0.lock().unwrap());
    fs::write(scratch.0.path().with_extension("new"), "{\"vers").unwrap();
    apply(&mut kernel, &scratch.0, &wanted(&[mtu(3000)])).unwrap();
    assert_eq!(scratch.files(), ["42-7.json"]);
}

/// A journal that is there, of an MTU that was 9000.
fn with_journal() -> (Scratch, Fake, PathBuf) {
    let scratch = Scratch::new();
    let mut kernel = Fake::new(&[mtu(9000), lro(true)]);
    apply(&mut kernel, &scratch.0, &wanted(&[mtu(3000)])).unwrap();
    let path = scratch.0.path();
    (scratch, kernel, path)
}

/// Neither sets anything, and both say this.
fn refused(kernel: &mut Fake, place: &Place, says: &str) {
    let before = kernel.values.clone();
    let applied = apply(kernel, place, &wanted(&[lro(false)])).unwrap_err().to_string();
    assert!(applied.contains(says), "{applied}");
    let undone = undo(kernel, place).unwrap_err().to_string();
    assert!(undone.contains(says), "{undone}");
    assert_eq!(kernel.values, before);
}

#[test]
fn a_journal_of_another_boot_is_removed_and_sets_nothing() {
    let (scratch, mut kernel, path) = with_journal();
    let place = Place { boot: "next".to_owned(), ..scratch.0.clone() };
    assert_eq!(undo(&mut kernel, &place).unwrap(), []);
    assert!(!path.exists());
    assert_eq!(kernel.value(&mtu(0)), "3000");
}

#[test]
fn a_journal_of_an_interface_that_was_made_anew_or_renamed_sets_nothing() {
    let (scratch, mut kernel, path) = with_journal();
    for (index, name) in [(8, "eth1"), (7, "eth2")] {
        let interface = Some(Interface { index, name: name.to_owned() });
        let place = Place { interface, ..scratch.0.clone() };
        let says = format!("eth1 with index 7, which is now {name} with index {index}");
        refused(&mut kernel, &place, &says);
    }
    // One that is removed, as is said, is in nobody's way.
    fs::remove_file(path).unwrap();
    assert_eq!(undo(&mut kernel, &scratch.0).unwrap(), []);
}

#[test]
fn a_journal_that_is_cut_or_changed_sets_nothing_and_panics_nowhere() {
    let (scratch, mut kernel, path) = with_journal();
    let whole = fs::read(&path).unwrap();
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        refused(&mut kernel, &scratch.0, "is no journal");
    }
    for (from, to) in [
        ("\"version\": 1", "\"version\": 2"),
        ("\"interface\": \"eth1\"", "\"interface\": \"eth0\""),
    ] {
        fs::write(&path, String::from_utf8(whole.clone()).unwrap().replace(from, to)).unwrap();
        refused(&mut kernel, &scratch.0, "is no journal");
    }
    for at in 0..whole.len() {
        let mut other = whole.clone();
        other[at] ^= 0x81;
        fs::write(&path, other).unwrap();
        _ = undo(&mut Fake::new(&[]), &scratch.0);
    }
}

#[test]
fn a_journal_that_somebody_else_may_have_written_sets_nothing() {
    let (scratch, mut kernel, path) = with_journal();
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&path, 0o622);
    refused(&mut kernel, &scratch.0, "others can write it (mode 622)");
    mode(&path, 0o600);
    mode(&scratch.0.directory, 0o777);
    refused(&mut kernel, &scratch.0, "others can write it (mode 777)");
    mode(&scratch.0.directory, 0o700);
    // Who is not root cannot give files away.
    if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
        refused(&mut kernel, &scratch.0, "it belongs to user 65534");
    }
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside).unwrap();
    symlink(&aside, &path).unwrap();
    refused(&mut kernel, &scratch.0, "symbolic link");
}

#[test]
fn a_second_process_is_told_which_one_mends_at_the_moment() {
    let (scratch, mut kernel, _) = with_journal();
    let lock = scratch.0.lock().unwrap();
    refused(&mut kernel, &scratch.0, &format!("process {} mends", std::process::id()));
    drop(lock);
    assert_eq!(undo(&mut kernel, &scratch.0).unwrap().len(), 1);
}

#[test]
fn on_a_full_disk_nothing_is_set() {
    let scratch = Scratch::new();
    let directory = scratch.0.directory.parent().unwrap().to_owned();
    fs::create_dir_all(&directory).unwrap();
    let mount = |program: &str, args: &[&str]| {
        Command::new(program).args(args).arg(&directory).status().is_ok_and(|it| it.success())
    };
    // Who may not mount sees this elsewhere.
    if !mount("mount", &["-t", "tmpfs", "-o", "size=8k,mode=700", "tmpfs"]) {
        return;
    }
    let mut kernel = Fake::new(&[mtu(9000)]);
    let empty = undo(&mut kernel, &scratch.0);
    fs::write(directory.join("filler"), [0; 4096]).unwrap();
    let told = apply(&mut kernel, &scratch.0, &wanted(&[mtu(3000)]));
    let unmounted = mount("umount", &[]);
    assert_eq!(empty.unwrap(), []);
    let why = told.unwrap_err().to_string();
    assert!(why.contains("No space left") && why.contains("42-7.json"), "{why}");
    assert_eq!(kernel.value(&mtu(0)), "9000");
    assert!(unmounted);
}
