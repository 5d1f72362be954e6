//! The initramfs of a machine, made on the fly: busybox, `rma-bench`, their libraries, the modules
//! of a NIC.
//!
//! The archive is `cpio`'s format "newc", which the kernel reads
//! (<https://github.com/torvalds/linux/blob/v6.12/Documentation/driver-api/early-userspace/buffer-format.rst>).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    error::Setup,
    kernels::{Kernel, run},
};
use crate::host;

/// The script that runs in a machine.
const INIT: &[u8] = include_bytes!("init.sh");

/// The folder of programs in a machine.
const PROGRAMS: &str = "bin";

/// Writes the image of a machine with this kernel, these `programs`, and `modules` with all that
/// they need.
pub(super) fn write(
    to: &Path,
    kernel: &Kernel,
    programs: &[PathBuf],
    modules: &[&str],
) -> Result<(), Setup> {
    let mut archive = Archive::default();
    archive.file("init", 0o755, INIT);
    let mut libraries = BTreeSet::new();
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("{PROGRAMS}/{name}"), 0o755, &read(program)?);
        libraries.extend(libraries_of(program)?);
    }
    for library in libraries {
        let name = library.to_string_lossy();
        archive.file(name.trim_start_matches('/'), 0o755, &read(&library)?);
    }
    let mut order = Vec::new();
    for name in modules {
        add_module(&mut archive, &mut order, kernel, name)?;
    }
    archive.file("modules/order", 0o644, format!("{}\n", order.join("\n")).as_bytes());
    fs::write(to, archive.end()).map_err(|source| Setup::File {
        doing: "writing",
        path: to.into(),
        source,
    })
}

/// A program without what only a debugger reads, which is most of it.
pub(super) fn stripped(program: &Path, folder: &Path) -> Result<PathBuf, Setup> {
    let to = folder.join(program.file_name().unwrap_or_default());
    run(Command::new("strip").arg("--strip-debug").arg("-o").arg(&to).arg(program))?;
    Ok(to)
}

fn read(path: &Path) -> Result<Vec<u8>, Setup> {
    fs::read(path).map_err(|source| Setup::File { doing: "reading", path: path.into(), source })
}

/// The shared libraries of a program, the loader among them; none if it is static.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, Setup> {
    let static_said = "not a dynamic executable";
    match run(Command::new("ldd").arg(program)) {
        Ok(output) => Ok(libraries_in(&String::from_utf8_lossy(&output))),
        Err(Setup::Command { said, .. }) if said.contains(static_said) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads what `ldd` says: `libz.so.1 => /lib/libz.so.1 (0x1234)`, and the loader without an arrow.
fn libraries_in(ldd: &str) -> Vec<PathBuf> {
    let paths = ldd.lines().filter_map(|line| {
        let line = line.trim();
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        path.split(' ').next().filter(|path| path.starts_with('/'))
    });
    paths.map(PathBuf::from).collect()
}

/// Adds a module after those that it needs. One that is built in needs no adding.
fn add_module(
    archive: &mut Archive,
    order: &mut Vec<String>,
    kernel: &Kernel,
    name: &str,
) -> Result<(), Setup> {
    let file = format!("{name}.ko");
    if order.contains(&file) {
        return Ok(());
    }
    let Some(path) = find_module(&kernel.modules, name) else {
        let builtin = read(&kernel.modules.join("modules.builtin"))?;
        let builtin = String::from_utf8_lossy(&builtin);
        if builtin.lines().any(|line| module_name(Path::new(line)).is_some_and(|it| it == name)) {
            return Ok(());
        }
        let folder = kernel.modules.clone();
        return Err(Setup::NotInPackage { what: format!("module {name}"), folder });
    };
    let bytes = match path.extension().and_then(|it| it.to_str()) {
        Some("xz") => run(Command::new("busybox").args(["xz", "-dc"]).arg(&path))?,
        _ => read(&path)?,
    };
    for needed in needs(&bytes) {
        add_module(archive, order, kernel, &needed)?;
    }
    archive.file(&format!("modules/{file}"), 0o644, &bytes);
    order.push(file);
    Ok(())
}

/// The modules that a module needs, from its own note about it.
fn needs(module: &[u8]) -> Vec<String> {
    const MARK: &[u8] = b"\0depends=";
    let Some(at) = module.windows(MARK.len()).position(|window| window == MARK) else {
        return Vec::new();
    };
    let text = module[at + MARK.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(text).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// A module's name as the kernel writes it: files may have hyphens.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let (name, rest) = file.split_once(".ko")?;
    matches!(rest, "" | ".xz").then(|| name.replace('-', "_"))
}

fn find_module(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if module_name(&path).is_some_and(|found| found == name) {
                return Some(path);
            }
        }
    }
    None
}

/// An archive in the making.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

/// File types of `stat`.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

impl Archive {
    /// Adds a file, and the folders above it.
    fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        for (at, _) in name.match_indices('/') {
            if self.folders.insert(name[..at].to_owned()) {
                self.entry(&name[..at], FOLDER | 0o755, &[]);
            }
        }
        self.entry(name, FILE | mode, content);
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let len = u32::try_from(content.len()).expect("files of less than 4 GiB");
        let name_len = name.len() as u32 + 1;
        // inode, mode, owner, group, links, time, length, devices, length of the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

/// The folder that `rma-bench` is found in, in a machine.
pub(super) fn program(name: &str) -> String {
    format!("/{PROGRAMS}/{name}")
}

/// Returns the path of busybox.
pub(super) fn busybox() -> Option<PathBuf> {
    host::find_program("busybox")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_folders_before_files_and_is_padded() {
        let mut archive = Archive::default();
        archive.file("a/b/c", 0o644, b"12345");
        archive.file("a/d", 0o755, b"");
        let bytes = archive.end();
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        let header = |name: &str| at(name) - 110;
        assert_eq!(&text[header("a")..][..14], "07070100000001");
        assert_eq!(&text[header("a/b/c")..][14..22], "000081a4");
        assert_eq!(&text[header("a/b/c")..][54..62], "00000005");
        assert!(at("a") < at("a/b") && at("a/b") < at("a/b/c") && at("a/b/c") < at("TRAILER!!!"));
        assert_eq!(text.matches("070701").count(), 5);
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn libraries_are_those_that_ldd_found_with_the_loader() {
        let said = "\tlinux-vdso.so.1 (0x00007fff)\n\tlibz.so.1 => /lib/libz.so.1 (0x7f)\n\
                    \tlibno.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00)\n";
        let expected = ["/lib/libz.so.1", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries_in(said), expected);
    }

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF..\0license=GPL\0depends=net-failover,virtio\0retpoline=Y\0";
        assert_eq!(needs(module), ["net_failover", "virtio"]);
        assert_eq!(needs(b"\0license=GPL\0depends=\0"), Vec::<String>::new());
        assert_eq!(module_name(Path::new("kernel/virtio-rng.ko.xz")).unwrap(), "virtio_rng");
        assert_eq!(module_name(Path::new("kernel/virtio.txt")), None);
    }
}
