use super::*;
use rustix::{
    fs::{MemfdFlags, SealFlags},
    io::dup,
};
use std::{
    io::Write,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, PermissionsExt},
    },
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// A file that is removed afterwards.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(content: &[u8]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rma-region-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let scratch = Self(std::env::temp_dir().join(name));
        scratch.open().write_all(content).unwrap();
        std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o600)).unwrap();
        scratch
    }

    fn open(&self) -> File {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0xee; region.len()];
    region.copy_out(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn shared_memory_is_the_same_through_its_file_descriptor() {
    let len = 2 * crate::mapping::PAGE_SIZE + 3;
    let made = Region::memfd("rma-test", len).unwrap();
    assert_eq!((made.backing(), bytes(&made)), (Backing::Memfd, vec![0; len]));
    let mapped = Region::map_memfd(dup(made.fd().unwrap()).unwrap()).unwrap();
    assert_eq!((mapped.backing(), mapped.len()), (Backing::Memfd, len));
    made.copy_in(4095, b"one").unwrap();
    mapped.copy_in(len as u64 - 3, b"two").unwrap();
    assert_eq!(bytes(&made), bytes(&mapped));
    assert_eq!(&bytes(&made)[4095..4098], b"one");
    assert!(mapped.copy_in(len as u64 - 2, b"two").is_err());
    drop(made);
    assert_eq!(&bytes(&mapped)[len - 3..], b"two");
    mapped.sync().unwrap();
}

#[test]
fn nobody_can_shrink_shared_memory_and_what_can_be_shrunk_is_not_mapped() {
    let made = Region::memfd("rma-test", 8192).unwrap();
    for len in [0, 4096, 8191, 8193] {
        assert_eq!(rustix::fs::ftruncate(made.fd().unwrap(), len), Err(Errno::PERM));
    }
    let unsealed = || {
        let fd = rustix::fs::memfd_create("rma-test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 8192).unwrap();
        fd
    };
    assert_eq!(Region::map_memfd(unsealed()).unwrap_err(), MemoryError::NotSealed);
    let grows = unsealed();
    rustix::fs::fcntl_add_seals(&grows, SealFlags::SHRINK).unwrap();
    assert_eq!(Region::map_memfd(grows).unwrap().len(), 8192);
    let file = Scratch::new(&[1; 4096]);
    assert_eq!(Region::map_memfd(file.open().into()).unwrap_err(), MemoryError::NotSealed);
    let read_only = unsealed();
    rustix::fs::fcntl_add_seals(&read_only, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
    let refused = Region::map_memfd(read_only).unwrap_err().to_string();
    assert!(refused.contains("mapping shared memory of 8192 bytes"), "{refused}");
    let empty = rustix::fs::memfd_create("rma-test", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::fcntl_add_seals(&empty, SealFlags::SHRINK).unwrap();
    assert_eq!(Region::map_memfd(empty).unwrap_err(), MemoryError::Empty);
}

/// Runs a test of this module again, in another process, which finds `given` as its standard input.
fn in_child(test: &str, given: OwnedFd) -> std::process::ExitStatus {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("region::mapped::tests::{test}")])
        .env("RMA_SHM_CHILD", "1")
        .stdin(given)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap()
}

/// Returns the descriptor from the parent, if this is the child.
fn given() -> Option<OwnedFd> {
    std::env::var_os("RMA_SHM_CHILD")?;
    Some(std::io::stdin().as_fd().try_clone_to_owned().unwrap())
}

#[test]
fn another_process_sees_shared_memory() {
    if let Some(given) = given() {
        let region = Region::map_memfd(given).unwrap();
        assert_eq!(&bytes(&region)[5000..5004], b"ping");
        region.copy_in(5000, b"pong").unwrap();
        return;
    }
    let region = Region::memfd("rma-test", 6000).unwrap();
    region.copy_in(5000, b"ping").unwrap();
    let status = in_child(
        "another_process_sees_shared_memory",
        region.fd().unwrap().try_clone_to_owned().unwrap(),
    );
    assert!(status.success());
    assert_eq!(&bytes(&region)[5000..5004], b"pong");
}

#[test]
fn a_mapped_file_changes_with_the_region_and_the_region_with_it() {
    let scratch = Scratch::new(&[7; 5000]);
    let region = Region::map_file(scratch.open(), 4500).unwrap();
    assert_eq!((region.backing(), bytes(&region)), (Backing::File, vec![7; 4500]));
    region.copy_in(4400, &[8; 100]).unwrap();
    assert!(region.copy_in(4401, &[8; 100]).is_err());
    scratch.open().write_at(&[9; 10], 0).unwrap();
    region.sync().unwrap();
    assert_eq!(bytes(&region)[..11], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 7]);
    drop(region);
    let content = std::fs::read(&scratch.0).unwrap();
    assert_eq!((content.len(), content[4399], content[4500]), (5000, 7, 7));
    assert_eq!(content[4400..4500], [8; 100]);
}

/// The hazard that [`Region::map_file`] tells of is real.
#[test]
fn shrinking_a_mapped_file_kills_the_process_that_looks_and_spares_one_with_a_copy() {
    const SIGBUS: i32 = 7;
    if let Some(given) = given() {
        let file = File::from(given);
        let copy = Region::load_file(&file).unwrap();
        let region = Region::map_file(file.try_clone().unwrap(), 8192).unwrap();
        file.set_len(4096).unwrap();
        assert_eq!(bytes(&copy), [7; 8192]);
        region.copy_out(0, &mut [0; 4096]).unwrap();
        region.copy_out(4096, &mut [0; 1]).unwrap();
        return;
    }
    let scratch = Scratch::new(&[7; 8192]);
    let status = in_child(
        "shrinking_a_mapped_file_kills_the_process_that_looks_and_spares_one_with_a_copy",
        scratch.open().into(),
    );
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(SIGBUS), "{status}");
}

#[test]
fn files_that_may_shrink_or_are_none_are_refused_with_their_values() {
    let scratch = Scratch::new(&[7; 5000]);
    let error = Region::map_file(scratch.open(), 5001).unwrap_err();
    assert_eq!(error, MemoryError::FileTooShort { len: 5001, file_len: 5000 });
    assert_eq!(Region::map_file(scratch.open(), 0).unwrap_err(), MemoryError::Empty);
    for mode in [0o620, 0o602, 0o666] {
        std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(mode)).unwrap();
        let error = Region::map_file(scratch.open(), 5000).unwrap_err();
        assert!(matches!(error, MemoryError::FileOfOthers { mode: m, .. } if m == mode), "{error}");
        assert!(error.to_string().contains(&format!("{mode:o}")), "{error}");
    }
    let device = || File::options().read(true).write(true).open("/dev/null").unwrap();
    assert_eq!(Region::map_file(device(), 1).unwrap_err(), MemoryError::NotARegularFile);
    assert_eq!(Region::load_file(&device()).unwrap_err(), MemoryError::NotARegularFile);
    std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o600)).unwrap();
    let read_only = File::open(&scratch.0).unwrap();
    assert!(matches!(Region::map_file(read_only, 5000), Err(MemoryError::System { .. })));
}

#[test]
fn a_copy_of_a_file_has_nothing_to_do_with_it_any_more() {
    let content: Vec<u8> = (0..CHUNK + 1000).map(|index| (index * 7) as u8).collect();
    let scratch = Scratch::new(&content);
    let region = Region::load_file(&scratch.open()).unwrap();
    scratch.open().set_len(0).unwrap();
    assert_eq!((region.backing(), bytes(&region)), (Backing::Ordinary, content));
    assert!(region.fd().is_none());
    assert_eq!(Region::load_file(&scratch.open()).unwrap_err(), MemoryError::Empty);
}

#[test]
fn without_reserved_huge_pages_the_error_says_how_to_get_some_and_ordinary_memory_is_there() {
    // More than any machine has.
    let error = Region::huge_pages(1 << 50, HugePageSize::TwoMiB).unwrap_err();
    let MemoryError::NoHugePages { pages, .. } = error else { panic!("{error}") };
    assert_eq!(pages, 1 << 29);
    let text = error.to_string();
    assert!(text.contains("hugepages-2048kB/nr_hugepages") && text.contains("536870912"), "{text}");
    for page in [HugePageSize::TwoMiB, HugePageSize::OneGiB] {
        assert!(Region::huge_pages(isize::MAX as usize, page).is_err());
        assert_eq!(Region::huge_pages(0, page).unwrap_err(), MemoryError::Empty);
        let (region, why) = Region::prefer_huge_pages(5000, page).unwrap();
        let expected = if why.is_none() { Backing::HugePages(page) } else { Backing::Ordinary };
        assert_eq!((region.backing(), bytes(&region)), (expected, vec![0; 5000]));
    }
}

/// Gives back what was reserved, also when the test fails.
struct Reserved(u64);

impl Reserved {
    const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    fn more(pages: u64) -> Self {
        let before: u64 = std::fs::read_to_string(Self::COUNT).unwrap().trim().parse().unwrap();
        std::fs::write(Self::COUNT, (before + pages).to_string()).unwrap();
        Self(before)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::COUNT, self.0.to_string());
    }
}

#[test]
fn shared_memory_of_huge_pages_is_refused_as_its_pages_may_go() {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let fd = rustix::fs::memfd_create("rma-test", flags).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    assert_eq!(Region::map_memfd(fd).unwrap_err(), MemoryError::NotSealed);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn reserved_huge_pages_are_used_and_come_back() {
    let page = HugePageSize::TwoMiB;
    let free = || page.free().unwrap();
    let _reserved = Reserved::more(3);
    let before = free();
    assert!(before >= 3, "the machine has no memory for three huge pages");
    let region = Region::huge_pages(page.bytes() + 1, page).unwrap();
    assert_eq!((region.backing(), free()), (Backing::HugePages(page), before - 2));
    region.copy_in(page.bytes() as u64 - 1, &[1, 2]).unwrap();
    assert_eq!(bytes(&region)[page.bytes() - 1..], [1, 2]);
    drop(region);
    assert_eq!(free(), before);
}

#[test]
fn a_hole_in_shared_memory_is_zeros_and_no_signal() {
    let region = Region::memfd("rma-test", 8192).unwrap();
    region.copy_in(0, &[7; 8192]).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(region.fd().unwrap(), flags, 0, 4096).unwrap();
    assert_eq!(bytes(&region), [[0; 4096], [7; 4096]].concat());
    region.copy_in(0, &[1; 4096]).unwrap();
    assert_eq!(bytes(&region), [[1; 4096], [7; 4096]].concat());
}

#[test]
fn a_file_of_huge_pages_is_not_mapped() {
    // It takes no huge page before it is mapped.
    let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let file = rustix::fs::memfd_create("rma-test", flags).unwrap();
    rustix::fs::ftruncate(&file, 2 << 20).unwrap();
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(Region::map_file(file, 4096).unwrap_err(), MemoryError::FileOfHugePages);
}
