//! The log on a disk that fails, and in files that others move.

use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    audit::What,
    epoch::Life,
    time::{Now, WallTime},
};

fn event(sequence: u64) -> Event {
    let at = Now { boot: Instant::ZERO, wall: WallTime::from_unix_millis(0) };
    Event { life: Life([7; 8]), sequence, at, peer: None, what: What::Reloaded { withdrawn: 0 } }
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A file on a disk with so much room left.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    octets: Vec<u8>,
    room: usize,
    is_uncuttable: bool,
    /// Somebody cuts the file off before the next write.
    is_cut_off: bool,
    syncs: u32,
}

impl Sink for Disk {
    fn len_at(&self, _: &Path) -> io::Result<Option<u64>> {
        self.len().map(Some)
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if core::mem::take(&mut disk.is_cut_off) {
            disk.octets.clear();
        }
        let fits = octets.len().min(disk.room);
        disk.octets.extend_from_slice(&octets[..fits]);
        disk.room -= fits;
        if fits < octets.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if disk.is_uncuttable {
            return Err(io::ErrorKind::Other.into());
        }
        disk.octets.resize(len as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().octets.len() as u64)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().syncs += 1;
        Ok(())
    }
}

fn log(on_full: OnFull, room: usize) -> (Log, Disk) {
    let disk = Disk::default();
    disk.0.lock().unwrap().room = room;
    let log = Log {
        path: "audit.log".into(),
        config: LogConfig { on_full, ..LogConfig::default() },
        sink: Box::new(disk.clone()),
        len: 0,
        is_torn: false,
        sync_at: None,
        rotate_at: None,
        is_told: false,
        counters: LogCounters::default(),
    };
    (log, disk)
}

/// The numbers of the events whose lines are whole.
fn sequences(octets: &[u8]) -> Vec<u64> {
    let text = core::str::from_utf8(octets).unwrap();
    let lines = text.lines().filter_map(|it| serde_json::from_str(it).ok());
    lines.map(|it: serde_json::Value| it["sequence"].as_u64().unwrap()).collect()
}

#[test]
fn a_full_disk_refuses_and_leaves_no_half_line() {
    let len = event(1).to_string().len() + 1;
    for is_uncuttable in [false, true] {
        let (mut log, disk) = log(OnFull::Refuse, 2 * len + len / 2);
        disk.0.lock().unwrap().is_uncuttable = is_uncuttable;
        log.write(at(0), &[event(1)]).unwrap();
        // Two of one reply: all or none.
        let error = log.write(at(0), &[event(2), event(3)]).unwrap_err().to_string();
        assert!(error.starts_with("the audit log audit.log: "), "{error}");
        disk.0.lock().unwrap().room = 10 * len;
        log.write(at(0), &[event(4)]).unwrap();
        let octets = disk.0.lock().unwrap().octets.clone();
        let whole = sequences(&octets);
        assert!(whole.starts_with(&[1]) && whole.ends_with(&[4]), "{whole:?}");
        assert!(octets.ends_with(b"}\n") && (is_uncuttable || whole == [1, 4]), "{whole:?}");
        assert_eq!((log.counters().written, log.counters().lost), (2, 2));
        // Full again: what is taken back now is what was written last, and nothing before it.
        (disk.0.lock().unwrap().room, disk.0.lock().unwrap().is_uncuttable) = (len / 2, false);
        log.write(at(0), &[event(5)]).unwrap_err();
        assert_eq!(sequences(&disk.0.lock().unwrap().octets), whole);
    }
}

#[test]
fn whoever_prefers_to_serve_does_and_it_is_counted() {
    let (mut log, _) = log(OnFull::Serve, 0);
    log.write(at(0), &[event(1), event(2)]).unwrap();
    let LogCounters { written, lost, served_unrecorded, .. } = log.counters();
    assert_eq!((written, lost, served_unrecorded), (0, 2, 1));
}

#[test]
fn the_disk_has_it_a_second_later() {
    let (mut log, disk) = log(OnFull::Refuse, 1 << 20);
    let syncs = || disk.0.lock().unwrap().syncs;
    log.poll(at(0));
    log.write(at(100), &[event(1)]).unwrap();
    log.write(at(900), &[event(2)]).unwrap();
    assert_eq!(log.poll_timeout(), Some(at(1100)));
    log.poll(at(1099));
    assert_eq!(syncs(), 0);
    log.poll(at(1100));
    assert_eq!((syncs(), log.poll_timeout()), (1, None));
}

#[test]
fn files_are_named_anew_by_size_and_a_torn_line_of_a_crash_is_ended() {
    let folder = std::env::temp_dir().join(format!("rma-keys-log-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("audit.log");
    fs::write(&path, "{\"life\":\"07").unwrap();
    let len_max = 3 * (event(1).to_string().len() as u64 + 1);
    let config = LogConfig { len_max, files_max: 2, ..LogConfig::default() };
    let mut log = Log::open(&path, config).unwrap();
    for sequence in 1..=10 {
        log.write(at(0), &[event(sequence)]).unwrap();
    }
    assert_eq!(log.counters().rotated, 3);
    drop(log);
    let read = |name: &str| sequences(&fs::read(folder.join(name)).unwrap());
    let all = [read("audit.log.2"), read("audit.log.1"), read("audit.log")].concat();
    assert_eq!(all, (3..=10).collect::<Vec<_>>(), "the oldest two went with the torn line");
    assert!(!folder.join("audit.log.3").exists());
    let error = Log::open(&folder.join("no/such"), config).unwrap_err().to_string();
    assert!(error.contains("no/such"), "{error}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn where_no_new_file_can_be_made_none_that_is_there_is_lost() {
    let folder = std::env::temp_dir().join(format!("rma-keys-full-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("audit.log");
    let len_max = 3 * (event(1).to_string().len() as u64 + 1);
    let config = LogConfig { len_max, files_max: 2, ..LogConfig::default() };
    let mut log = Log::open(&path, config).unwrap();
    let mut write = |millis, sequences: core::ops::Range<u64>| {
        sequences.for_each(|it| log.write(at(millis), &[event(it)]).unwrap());
        (log.counters().rotated, log.counters().not_rotated)
    };
    assert_eq!(write(0, 1..8), (2, 0));
    // In the way of the new file, as a disk without room for a name would be.
    fs::create_dir(folder.join("audit.log.new")).unwrap();
    assert_eq!(write(0, 8..28), (2, 1), "once, and then not before a second has passed");
    assert_eq!(write(999, 28..30), (2, 1));
    assert_eq!(write(1000, 30..31), (2, 2));
    let read = |name: &str| sequences(&fs::read(folder.join(name)).unwrap());
    let all = ["audit.log.2", "audit.log.1", "audit.log"].map(read).concat();
    assert_eq!(all, (1..31).collect::<Vec<_>>());
    fs::remove_dir(folder.join("audit.log.new")).unwrap();
    // A number that is free is filled, and the oldest stays.
    fs::rename(folder.join("audit.log.1"), folder.join("elsewhere")).unwrap();
    assert_eq!(write(2000, 31..32), (3, 2));
    assert_eq!([read("audit.log.2"), read("audit.log")], [vec![1, 2, 3], vec![31]]);
    fs::remove_dir_all(&folder).unwrap();
}

/// A log in a folder of its own, which goes with it.
struct OnDisk {
    folder: PathBuf,
    log: Log,
}

impl OnDisk {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rma-keys-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let log = Log::open(&folder.join("audit.log"), LogConfig::default()).unwrap();
        Self { folder, log }
    }

    fn write(&mut self, sequence: u64) -> Result<(), LogError> {
        self.log.write(at(0), &[event(sequence)])
    }

    fn read(&self, name: &str) -> Vec<u64> {
        sequences(&fs::read(self.folder.join(name)).unwrap())
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_line_is_written_where_it_is_looked_for_whoever_has_moved_or_removed_the_file() {
    let mut disk = OnDisk::new("moved");
    let path = disk.folder.join("audit.log");
    disk.write(1).unwrap();
    // As `logrotate` does, without `copytruncate`, and with `nocreate`.
    fs::rename(&path, disk.folder.join("audit.log-1")).unwrap();
    disk.write(2).unwrap();
    disk.write(3).unwrap();
    assert_eq!((disk.read("audit.log-1"), disk.read("audit.log")), (vec![1], vec![2, 3]));
    fs::remove_file(&path).unwrap();
    disk.write(4).unwrap();
    assert_eq!(disk.read("audit.log"), [4]);
    // With `create`, and with the half line of a run that was killed in the new file.
    fs::rename(&path, disk.folder.join("audit.log-2")).unwrap();
    fs::write(&path, "{\"life\":\"07").unwrap();
    disk.write(5).unwrap();
    assert_eq!((disk.read("audit.log-2"), disk.read("audit.log")), (vec![4], vec![5]));
    let LogCounters { written, lost, moved, cut_off, .. } = disk.log.counters();
    assert_eq!((written, lost, moved, cut_off), (5, 0, 3, 0));
}

#[test]
fn an_event_that_cannot_be_written_in_its_place_is_not_written_elsewhere() {
    let mut disk = OnDisk::new("unwritable");
    let path = disk.folder.join("audit.log");
    disk.write(1).unwrap();
    fs::rename(&path, disk.folder.join("audit.log-1")).unwrap();
    fs::create_dir(&path).unwrap();
    for sequence in 2..5 {
        let error = disk.write(sequence).unwrap_err().to_string();
        assert!(error.contains("audit.log: "), "{error}");
    }
    assert_eq!(disk.read("audit.log-1"), [1]);
    fs::remove_dir(&path).unwrap();
    disk.write(5).unwrap();
    assert_eq!((disk.read("audit.log"), disk.log.counters().lost), (vec![5], 3));
    // The whole folder.
    let away = disk.folder.with_extension("away");
    fs::rename(&disk.folder, &away).unwrap();
    disk.write(6).unwrap_err();
    fs::rename(&away, &disk.folder).unwrap();
    disk.write(7).unwrap();
    assert_eq!(disk.read("audit.log"), [5, 7]);
}

#[test]
fn a_file_that_was_copied_and_cut_off_goes_on_at_its_new_end_and_never_gets_zeros() {
    let mut disk = OnDisk::new("cut-off");
    let path = disk.folder.join("audit.log");
    (1..=20).for_each(|sequence| disk.write(sequence).unwrap());
    fs::copy(&path, disk.folder.join("audit.log-1")).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    disk.write(21).unwrap();
    assert_eq!((disk.read("audit.log"), disk.log.counters().cut_off), (vec![21], 1));
    // The file's length is the one to go by when it is full, too.
    disk.log.config.len_max = fs::metadata(&path).unwrap().len() * 2;
    disk.write(22).unwrap();
    assert_eq!((disk.read("audit.log"), disk.log.counters().rotated), (vec![21, 22], 0));
}

/// An operator says so that there shall be no log.
#[test]
fn a_log_that_leads_to_the_null_device_is_neither_cut_off_nor_moved() {
    let mut disk = OnDisk::new("null");
    let path = disk.folder.join("audit.log");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    disk.log = Log::open(&path, LogConfig { len_max: 1, ..LogConfig::default() }).unwrap();
    (1..=20).for_each(|sequence| disk.write(sequence).unwrap());
    let LogCounters { written, moved, rotated, cut_off, .. } = disk.log.counters();
    assert_eq!((written, moved, rotated, cut_off), (20, 0, 0, 0));
}

#[test]
fn a_write_that_fails_never_makes_a_file_longer_that_was_cut_off() {
    let (mut log, disk) = log(OnFull::Refuse, 1 << 20);
    log.write(at(0), &[event(1)]).unwrap();
    // Cut off, and full, in the moment between the look and the write.
    let len = log.len;
    disk.0.lock().unwrap().room = 0;
    disk.0.lock().unwrap().is_cut_off = true;
    log.write(at(0), &[event(2)]).unwrap_err();
    assert_eq!((disk.0.lock().unwrap().octets.len(), log.is_torn), (0, false), "{len} before");
}
