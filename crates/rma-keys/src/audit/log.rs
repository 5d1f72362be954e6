//! The audit log as files: a line for each event, written before the reply that it is about.
//!
//! Lines are appended; what the last second wrote is brought to the disk once a second, so a crash
//! of the machine may lose that second. A line that could not be written whole is taken back, or
//! ended before the next one, so that none is ever taken for whole that is not. When the file is
//! full it is named `FILE.1`, what was `FILE.1` becomes `FILE.2`, and so on; the oldest goes, once
//! there is a new file: where none can be made, the log goes on in the one that is full.
//!
//! Time is an argument. What is written holds no key, as no event does.

use core::{fmt, fmt::Write as _, time::Duration};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rma_core::time::Instant;

use crate::audit::Event;

/// How often what has been written is brought to the disk.
pub const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What becomes of a reply whose events cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// No record, no grant: the client is told to come back.
    #[default]
    Refuse,
    /// It is sent all the same, and counted.
    Serve,
}

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct LogConfig {
    /// How long a file may become, in octets. Default: 64 MiB.
    pub len_max: u64,
    /// How many full files are kept. Default: 9.
    pub files_max: u32,
    /// What becomes of a reply whose events cannot be written. Default: it is not sent.
    pub on_full: OnFull,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { len_max: 64 << 20, files_max: 9, on_full: OnFull::default() }
    }
}

/// What a log has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Events that were written.
    pub written: u64,
    /// Events that could not be.
    pub lost: u64,
    /// Replies that were sent although their events could not be written.
    pub served_unrecorded: u64,
    /// Times that the disk did not take what was written.
    pub not_synced: u64,
    /// Files that were full.
    pub rotated: u64,
    /// Files that were full and could not be moved: the log goes on in the same.
    pub not_rotated: u64,
}

/// Why a log cannot be kept, or an event not written.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {}: {why}", path.display())]
pub struct LogError {
    /// The file.
    pub path: PathBuf,
    /// The system's reason.
    pub why: io::Error,
}

/// What a log writes to.
trait Sink: Send {
    fn append(&mut self, octets: &[u8]) -> io::Result<()>;
    fn cut(&mut self, len: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        self.write_all(octets)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// An audit log that is being written.
pub struct Log {
    path: PathBuf,
    config: LogConfig,
    sink: Box<dyn Sink>,
    /// How much of the file is whole lines.
    len: u64,
    /// Whether something follows those that could not be taken back.
    is_torn: bool,
    /// When to bring what was written to the disk.
    sync_at: Option<Instant>,
    /// When to try again to begin another file, if that has failed.
    rotate_at: Option<Instant>,
    counters: LogCounters,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Log {
    /// Goes on with the log at `path`, or begins it, for nobody but its owner and group to read.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn open(path: &Path, config: LogConfig) -> Result<Self, LogError> {
        let failed = |why| LogError { path: path.to_owned(), why };
        let (file, len, is_torn) = open(path).map_err(failed)?;
        let (path, sink) = (path.to_owned(), Box::new(file));
        let counters = LogCounters::default();
        let (sync_at, rotate_at) = (None, None);
        Ok(Self { path, config, sink, len, is_torn, sync_at, rotate_at, counters })
    }

    /// What it has done so far.
    #[must_use]
    pub const fn counters(&self) -> LogCounters {
        self.counters
    }

    /// When [`Self::poll`] is to be called.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.sync_at
    }

    /// Writes events, all or none. Returns whether the reply that they are about may be sent: they
    /// are written, or it is to be sent all the same.
    ///
    /// # Errors
    /// If they could not be written, and the reply is not to be sent.
    pub fn write(&mut self, now: Instant, events: &[Event]) -> Result<(), LogError> {
        let Err(why) = self.append(now, events) else { return Ok(()) };
        self.counters.lost += events.len() as u64;
        match self.config.on_full {
            OnFull::Serve => {
                self.counters.served_unrecorded += 1;
                Ok(())
            }
            OnFull::Refuse => Err(LogError { path: self.path.clone(), why }),
        }
    }

    fn append(&mut self, now: Instant, events: &[Event]) -> io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut lines = String::new();
        for event in events {
            writeln!(lines, "{event}").map_err(io::Error::other)?;
        }
        let is_full = self.len > 0 && self.len + lines.len() as u64 > self.config.len_max;
        if is_full && self.rotate_at.is_none_or(|at| at <= now) {
            self.rotate(now);
        }
        if self.is_torn {
            // What could not be taken back gets a line of its own, which is none of JSON.
            self.sink.append(b"\n")?;
            self.len = self.sink.len()?;
            self.is_torn = false;
        }
        if let Err(why) = self.sink.append(lines.as_bytes()) {
            // A part may have been written.
            self.is_torn = self.sink.cut(self.len).is_err();
            return Err(why);
        }
        self.len += lines.len() as u64;
        self.counters.written += events.len() as u64;
        self.sync_at.get_or_insert(now + SYNC_EVERY);
        Ok(())
    }

    /// Brings what was written to the disk, if it is time to.
    pub fn poll(&mut self, now: Instant) {
        if self.sync_at.is_some_and(|at| at <= now) {
            self.sync_at = None;
            self.counters.not_synced += u64::from(self.sink.sync().is_err());
        }
    }

    fn rotate(&mut self, now: Instant) {
        let sync = self.sink.sync();
        self.counters.not_synced += u64::from(sync.is_err());
        match self.begin_anew() {
            Ok(file) => {
                (self.sink, self.len, self.is_torn) = (Box::new(file), 0, false);
                (self.counters.rotated, self.rotate_at) = (self.counters.rotated + 1, None);
            }
            Err(_) => {
                self.counters.not_rotated += 1;
                self.rotate_at = Some(now + SYNC_EVERY);
            }
        }
    }

    /// Makes a new file, and then names the others anew, the oldest first. Nothing is named anew
    /// before there is a new file: else each try in vain would push out the oldest.
    fn begin_anew(&self) -> io::Result<File> {
        let name = |suffix: &str| {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        let numbered =
            |number: u32| name(&if number > 0 { format!(".{number}") } else { "".into() });
        let new = name(".new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // What a run that was killed has left is gone.
            _ => {}
        }
        let (file, ..) = open(&new)?;
        // Where a number is free, as one was that could not be named anew, it is filled.
        let is_free = |&number: &u32| numbered(number).symlink_metadata().is_err();
        let last = (1..self.config.files_max).find(is_free).unwrap_or(self.config.files_max);
        for number in (0..last).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&new, &self.path)?;
        Ok(file)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        _ = self.sink.sync();
    }
}

/// The file, how long it is, and whether its last line is torn.
fn open(path: &Path) -> io::Result<(File, u64, bool)> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(0o640).open(path)?;
    let len = file.seek(SeekFrom::End(0))?;
    if len == 0 {
        return Ok((file, 0, false));
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok((file, len, last != *b"\n"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{
        audit::What,
        epoch::Life,
        time::{Now, WallTime},
    };

    fn event(sequence: u64) -> Event {
        let at = Now { boot: Instant::ZERO, wall: WallTime::from_unix_millis(0) };
        Event {
            life: Life([7; 8]),
            sequence,
            at,
            peer: None,
            what: What::Reloaded { withdrawn: 0 },
        }
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
        syncs: u32,
    }

    impl Sink for Disk {
        fn append(&mut self, octets: &[u8]) -> io::Result<()> {
            let mut disk = self.0.lock().unwrap();
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
            disk.octets.truncate(len as usize);
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
}
