//! Cores, their clocks, and who else has them.

use super::{Answer, Answered, Wanted};
use crate::{
    setting::Setting,
    snapshot::{Machine, Unseen},
    text::cores,
};

const CPU: &str = "sys/devices/system/cpu";
/// An idle state that takes longer to leave is told, in microseconds.
const LATENCY_MAX: u64 = 10;
/// The longest gap of a loop that spins, in microseconds.
const GAP_MAX: u64 = 1000;
/// Percents of a core's time.
const STEAL_MAX: f64 = 1.0;
const BUSY_MAX: f64 = 5.0;

pub(super) fn clock(machine: &Machine, _: &Wanted) -> Answered {
    let source =
        machine.files.text("sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    if ["arch_sys_counter", "kvm-clock"].contains(&source) {
        return Ok(Answer::ok(source));
    }
    let stops = !machine.files.text("proc/cpuinfo")?.contains("nonstop_tsc");
    Ok(match source {
        "tsc" if stops => {
            Answer::note("tsc, and the processor does not promise that it never stops")
        }
        "tsc" => Answer::ok(source),
        _ => Answer::mend(source).wanted("tsc").command("dmesg | grep -i -e tsc -e clocksource"),
    })
}

/// The cores that are used: those that were named, or else all that this process may use.
fn used(machine: &Machine, wanted: &Wanted) -> Result<Vec<usize>, Unseen> {
    if wanted.cores.is_empty() { machine.cores.get().cloned() } else { Ok(wanted.cores.clone()) }
}

pub(super) fn governor(machine: &Machine, wanted: &Wanted) -> Answered {
    const GOOD: &str = "performance";
    let (mut slow, mut seen) = (Vec::new(), 0);
    for core in used(machine, wanted)? {
        let path = format!("{CPU}/cpu{core}/cpufreq/scaling_governor");
        match machine.files.find(&path)? {
            Some(GOOD) => seen += 1,
            Some(other) => slow.push((core, other)),
            None => {}
        }
    }
    let Some((_, first)) = slow.first() else {
        return Ok(match seen {
            0 => Answer::does_not_apply("this system does not clock its cores"),
            _ => Answer::ok(GOOD),
        });
    };
    let list = slow.iter().map(|it| it.0.to_string()).collect::<Vec<_>>().join(",");
    let answer = Answer::mend(format!("{first} on {} of the cores", slow.len()))
        .wanted(GOOD)
        .command(format!("cpupower -c {list} frequency-set -g {GOOD}"));
    Ok(slow.iter().fold(answer, |answer, (core, _)| {
        let path = format!("/{CPU}/cpu{core}/cpufreq/scaling_governor");
        answer.setting(Setting::File { path, value: GOOD.into() })
    }))
}

pub(super) fn idle_states(machine: &Machine, _: &Wanted) -> Answered {
    machine.files.find(&format!("{CPU}/online"))?;
    let mut deepest = None;
    let mut any = false;
    for file in machine.files.ending("/latency") {
        any = true;
        let folder = file.path.trim_end_matches("latency");
        let is_off = machine.files.find(&format!("{folder}disable")).ok().flatten() == Some("1");
        let latency: Option<u64> = file.text.parse().ok();
        deepest = deepest.max(latency.filter(|it| *it > LATENCY_MAX && !is_off));
    }
    Ok(match (any, deepest) {
        (false, _) => Answer::does_not_apply("this system shows no idle states"),
        (_, None) => Answer::ok(format!("none above {LATENCY_MAX} us")),
        (_, Some(latency)) => Answer::mend(format!("{latency} us to leave the deepest"))
            .wanted(format!("at most {LATENCY_MAX} us"))
            .command("--low-latency, with every command of rma-bench"),
    })
}

pub(super) fn isolation(machine: &Machine, wanted: &Wanted) -> Answered {
    let isolated = cores(machine.files.find(&format!("{CPU}/isolated"))?.unwrap_or_default());
    let tickless = cores(machine.files.find(&format!("{CPU}/nohz_full"))?.unwrap_or_default());
    let lacks = |set: &[usize]| set.is_empty() || wanted.cores.iter().any(|it| !set.contains(it));
    if !lacks(&isolated) && !lacks(&tickless) {
        return Ok(Answer::ok("isolated and without ticks"));
    }
    let list: Vec<String> = wanted.cores.iter().map(ToString::to_string).collect();
    let list = if list.is_empty() { "CORES".to_owned() } else { list.join(",") };
    let found = match isolated.len() {
        0 => "no core is isolated".to_owned(),
        count => format!("{count} cores are isolated, {} without ticks", tickless.len()),
    };
    Ok(Answer::note(found)
        .wanted(format!("on the kernel's command line: isolcpus={list} nohz_full={list}")))
}

/// A core's times between the two readings: all, idle, stolen, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Times {
    fn between(machine: &Machine, label: &str) -> Result<Self, Unseen> {
        let [before, after] = machine.stat.get()?;
        let of = |text: &str| {
            let line = text.lines().find(|it| it.split(' ').next() == Some(label))?;
            let all: Vec<u64> =
                line.split_whitespace().skip(1).map_while(|it| it.parse().ok()).take(8).collect();
            let at = |index: usize| all.get(index).copied();
            let sum = all.iter().fold(0, |sum: u64, it| sum.saturating_add(*it));
            Some(Self { all: sum, idle: at(3)?.saturating_add(at(4)?), stolen: at(7)? })
        };
        let none = || Unseen(format!("/proc/stat has no line of {label}"));
        let (before, after) = (of(before).ok_or_else(none)?, of(after).ok_or_else(none)?);
        Ok(Self {
            all: after.all.saturating_sub(before.all),
            idle: after.idle.saturating_sub(before.idle),
            stolen: after.stolen.saturating_sub(before.stolen),
        })
    }

    fn percent(self, part: u64) -> f64 {
        part as f64 * 100.0 / self.all.max(1) as f64
    }
}

pub(super) fn smt(machine: &Machine, wanted: &Wanted) -> Answered {
    if wanted.cores.is_empty() {
        return Ok(Answer::does_not_apply("no cores were named"));
    }
    let mut pairs = Vec::new();
    for engine in wanted.cores.iter().take(wanted.engines.max(1) as usize) {
        let path = format!("{CPU}/cpu{engine}/topology/thread_siblings_list");
        let siblings = cores(machine.files.text(&path)?);
        pairs.extend(siblings.into_iter().filter(|it| it != engine).map(|it| [*engine, it]));
    }
    for [engine, sibling] in pairs {
        let times = Times::between(machine, &format!("cpu{sibling}"))?;
        let busy = times.percent(times.all.saturating_sub(times.idle));
        if busy > BUSY_MAX {
            return Ok(Answer::mend(format!(
                "core {sibling}, the sibling of {engine}, is {busy:.0} % busy"
            ))
            .wanted("a core whose sibling is idle")
            .command(format!("grep . /{CPU}/cpu*/topology/thread_siblings_list")));
        }
    }
    Ok(Answer::ok("no busy sibling"))
}

pub(super) fn cores_for_threads(machine: &Machine, wanted: &Wanted) -> Answered {
    let (there, spin) = (machine.cores.get()?.len(), wanted.engines.max(1) as usize);
    Ok(if there < spin {
        Answer::mend(there)
            .wanted(format!("{spin}, as many as threads that spin"))
            .command("taskset -cp $$")
    } else {
        Answer::ok(format!("{there} for {spin} that spins"))
    })
}

pub(super) fn steal(machine: &Machine, _: &Wanted) -> Answered {
    let (gap, times) = (*machine.gap_us.get()?, Times::between(machine, "cpu")?);
    let steal = times.percent(times.stolen);
    let found = format!("{steal:.1} % stolen, longest gap {gap} us in 200 ms");
    Ok(if steal > STEAL_MAX || gap > GAP_MAX {
        Answer::mend(found)
            .wanted(format!("at most {STEAL_MAX} % and {GAP_MAX} us"))
            .command("top -bn1 | head -12")
    } else {
        Answer::ok(found)
    })
}
