//! The kernel, and what this process may.

use rma_xdp::config::STATE_DIR;
use rma_xdp::device::xdp::{Capabilities, Release, SINGLE_BUFFER_MTU, XdpConfig};

use super::{Answer, Answered, Wanted};
use crate::{
    setting::Setting,
    snapshot::{Machine, Unseen},
};

/// The first Linux that loads the steering program, and the first with packets in several buffers.
pub(super) const STEERING: Release = Release { major: 5, minor: 18 };
pub(super) const MULTI_BUFFER: Release = Release { major: 6, minor: 6 };
/// Bytes of a chunk of a UMEM.
const CHUNK: u64 = 4096;
/// Regions from this size on gain by huge pages.
const HUGE_PAGE: u64 = 2 << 20;
const CAP_IPC_LOCK: u64 = 1 << 14;

pub(super) fn kernel(machine: &Machine, _: &Wanted) -> Answered {
    let text = machine.kernel.get()?;
    let release = Release::of(text);
    Ok(if release == (Release { major: 0, minor: 0 }) {
        return Err(Unseen(format!("{text:?} names no release")));
    } else if release < STEERING {
        Answer::mend(text).wanted(STEERING).command("apt install linux-image-amd64")
    } else if release < MULTI_BUFFER {
        Answer::note(text).why(format!(
            "before Linux {MULTI_BUFFER} an MTU above {SINGLE_BUFFER_MTU} does not work"
        ))
    } else {
        Answer::ok(text)
    })
}

pub(super) fn af_xdp(machine: &Machine, _: &Wanted) -> Answered {
    Ok(match machine.af_xdp.get()? {
        true => Answer::ok("there"),
        false => Answer::mend("not there")
            .wanted("CONFIG_XDP_SOCKETS=y")
            .command("grep XDP_SOCKETS /boot/config-$(uname -r)"),
    })
}

pub(super) fn capabilities(machine: &Machine, _: &Wanted) -> Answered {
    let unlimited = matches!(machine.memlock.get(), Ok(None));
    let lacking = Capabilities::lacking(*machine.capabilities.get()?, unlimited);
    if lacking.is_empty() {
        return Ok(Answer::ok("all"));
    }
    if let Ok(Some(of_file)) = machine.file_capabilities.get()
        && Capabilities::lacking(*of_file, unlimited).is_empty()
    {
        return Ok(Answer::mend(format!("lacks {lacking}, which the program's file has"))
            .wanted(Capabilities::NEEDED)
            .why("the kernel does not grant them: the file system is mounted nosuid, or new privileges are forbidden")
            .command("findmnt -no OPTIONS -T \"$(command -v rma-bench)\"; grep NoNewPrivs /proc/self/status"));
    }
    let setcap = Capabilities::NEEDED.as_setcap();
    Ok(Answer::mend(format!("lacks {lacking}"))
        .wanted(Capabilities::NEEDED)
        .command(format!("setcap {setcap} \"$(command -v rma-bench)\"")))
}

pub(super) fn memlock(machine: &Machine, wanted: &Wanted) -> Answered {
    let Some(limit) = *machine.memlock.get()? else { return Ok(Answer::ok("unlimited")) };
    if machine.capabilities.get()? & CAP_IPC_LOCK != 0 {
        return Ok(Answer::ok(format!("{limit} B, which CAP_IPC_LOCK lifts")));
    }
    let config = XdpConfig::new("", &[], &[]);
    let need = u64::from(config.chunk_count) * CHUNK * u64::from(wanted.engines.max(1));
    Ok(if limit < need {
        Answer::mend(format!("{limit} B"))
            .wanted(format!("{need} B"))
            .command("ulimit -l unlimited")
            .why("the memory of frames is locked; in a unit of systemd: LimitMEMLOCK=infinity")
    } else {
        Answer::ok(format!("{limit} B"))
    })
}

/// The fault of the state directory, if it has one.
fn state_dir_fault(machine: &Machine) -> Result<Option<&'static str>, Unseen> {
    let dir = machine.state_dir.get()?;
    Ok(match (dir.exists, dir.in_memory, dir.writable) {
        (false, ..) => Some("is not there"),
        (_, true, _) => Some("is lost when the machine restarts"),
        (.., false) => Some("is not writable by this user"),
        _ => None,
    })
}

pub(super) fn state_dir(machine: &Machine, _: &Wanted) -> Answered {
    Ok(match state_dir_fault(machine)? {
        None => Answer::ok(STATE_DIR),
        Some(fault) => Answer::mend(format!("{STATE_DIR} {fault}"))
            .wanted("a directory on a disk")
            .command(format!("install -d -m 700 -o \"$(id -u)\" {STATE_DIR}")),
    })
}

pub(super) fn wall_clock(machine: &Machine, _: &Wanted) -> Answered {
    if *machine.clock_synchronised.get()? {
        return Ok(Answer::ok("synchronised"));
    }
    let stands_on_it = state_dir_fault(machine)?.is_some();
    let answer = if stands_on_it { Answer::mend } else { Answer::note };
    Ok(answer("not synchronised".to_owned())
        .wanted("synchronised")
        .command("timedatectl set-ntp true"))
}

pub(super) fn aead(machine: &Machine, _: &Wanted) -> Answered {
    let provider = machine.aead.get()?;
    Ok(if provider == rma_core::crypto::ProviderKind::Portable.name() {
        Answer::mend(provider)
            .wanted("a processor with AES instructions, or a virtual one that shows them")
    } else {
        Answer::ok(provider)
    })
}

pub(super) fn bpf_jit(machine: &Machine, _: &Wanted) -> Answered {
    const PATH: &str = "proc/sys/net/core/bpf_jit_enable";
    Ok(match machine.files.find(PATH)? {
        None => Answer::does_not_apply("the kernel has no switch for it"),
        Some("0") => Answer::mend("off")
            .wanted("on")
            .command("sysctl -w net.core.bpf_jit_enable=1")
            .setting(Setting::File { path: format!("/{PATH}"), value: "1".into() }),
        Some(_) => Answer::ok("on"),
    })
}

pub(super) fn lockdown(machine: &Machine, _: &Wanted) -> Answered {
    let Some(text) = machine.files.find("sys/kernel/security/lockdown")? else {
        return Ok(Answer::ok("none"));
    };
    Ok(if text.contains("[confidentiality]") {
        Answer::mend("confidentiality")
            .wanted("integrity, or none")
            .command("grep -o 'lockdown=[a-z]*' /proc/cmdline")
    } else {
        Answer::ok(text.split(['[', ']']).nth(1).unwrap_or("none"))
    })
}

pub(super) fn huge_pages(machine: &Machine, wanted: &Wanted) -> Answered {
    if wanted.region < HUGE_PAGE {
        return Ok(Answer::does_not_apply("regions are small"));
    }
    let thp = machine.files.find("sys/kernel/mm/transparent_hugepage/enabled")?;
    if thp.is_some_and(|it| !it.contains("[never]")) {
        return Ok(Answer::ok("transparent"));
    }
    let meminfo = machine.files.text("proc/meminfo")?;
    let number = |name: &str| {
        let value = meminfo.lines().find_map(|it| it.strip_prefix(name));
        value.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    let [free, total] = ["HugePages_Free:", "HugePages_Total:"].map(number);
    let page = (number("Hugepagesize:") << 10).max(HUGE_PAGE);
    let need = wanted.region.div_ceil(page);
    // The setting is of all pages, those that others have among them.
    let all = total + need.saturating_sub(free);
    Ok(if free >= need {
        Answer::ok(format!("{free} free"))
    } else {
        Answer::mend(format!("{free} free, and none that are transparent"))
            .wanted(format!("{need} free"))
            .command(format!("sysctl -w vm.nr_hugepages={all}"))
    })
}
