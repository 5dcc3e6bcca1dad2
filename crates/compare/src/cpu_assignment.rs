//! The assignment of processors: the tracker gets the lowest ones, the load the highest ones, without overlap.

use std::fmt;
use std::str::FromStr;

use crate::topology::Topology;

/// How processors are assigned. The names are those of the published comparisons, so that results can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuMode {
    /// One processor after another, for machines without hyperthreads.
    #[default]
    Subsequent,
    /// Both hyperthreads of a core, if the second hyperthreads have the upper half of the numbers.
    SplitPairs,
    /// Both hyperthreads of a core, if they have adjacent numbers.
    SubsequentPairs,
    /// The first hyperthread of each core. The second ones stay idle.
    SubsequentOnePerPair,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuAssignment {
    /// The number of units of the tracker: processors or cores, depending on the mode.
    pub cores: usize,
    pub tracker: Vec<usize>,
    pub load: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuAssignmentError {
    #[error("there is no CPU mode {0:?}: use {names}", names = CpuMode::NAMES.join(", "))]
    UnknownMode(String),
    #[error("--cores 0: a tracker needs at least one")]
    NoCores,
    #[error("--load-cores 0: the load needs at least one")]
    NoLoad,
    #[error("--load-cores {load_cores}: in mode {mode} this machine has {has}; use at most {most}")]
    LoadTooMany { load_cores: usize, mode: CpuMode, has: usize, most: usize },
    #[error(
        "--cores {cores}: in mode {mode} this machine has {has} (processors {processors:?}), and the load needs at \
         least one of them; {instead}, or --allow-overlap to let tracker and load share",
        instead = match most {
            0 => "use --cpu-mode subsequent and few --load-cores".to_owned(),
            most => format!("use at most {most}"),
        }
    )]
    TooMany {
        cores: usize,
        mode: CpuMode,
        has: usize,
        processors: Vec<usize>,
        /// The largest possible number without overlap.
        most: usize,
    },
    #[error(
        "the hyperthreads of this machine are numbered differently ({pair:?} are one core): use --cpu-mode {use_instead}"
    )]
    OtherNumbering { pair: Vec<usize>, use_instead: CpuMode },
}

impl CpuMode {
    pub const NAMES: [&'static str; 4] =
        ["subsequent", "split-pairs", "subsequent-pairs", "subsequent-one-per-pair"];

    const ALL: [Self; 4] =
        [Self::Subsequent, Self::SplitPairs, Self::SubsequentPairs, Self::SubsequentOnePerPair];

    /// Returns the units of the machine, lowest first. A virtual machine often hides which processors are hyperthreads
    /// of one core. Pairs are then formed by number, as in the published comparisons.
    fn units(self, topology: &Topology) -> Result<Vec<Vec<usize>>, CpuAssignmentError> {
        let processors = topology.processors();
        if self == Self::Subsequent {
            return Ok(processors.iter().map(|processor| vec![*processor]).collect());
        }
        let pairs = if topology.has_hyperthreads() {
            self.check_numbering(topology)?;
            topology.cores().to_vec()
        } else if self == Self::SplitPairs {
            let (low, high) = processors.split_at(processors.len().div_ceil(2));
            let second = |index: usize| high.get(index).copied();
            low.iter()
                .enumerate()
                .map(|(index, first)| [*first].into_iter().chain(second(index)).collect())
                .collect()
        } else {
            processors.chunks(2).map(<[usize]>::to_vec).collect()
        };
        Ok(if self == Self::SubsequentOnePerPair {
            pairs.into_iter().map(|pair| pair[..1].to_vec()).collect()
        } else {
            pairs
        })
    }

    /// Checks that the machine numbers its hyperthreads as the name of the mode says.
    fn check_numbering(self, topology: &Topology) -> Result<(), CpuAssignmentError> {
        let neighbours = |core: &Vec<usize>| core.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let (fits, use_instead): (fn(bool) -> bool, _) = match self {
            Self::SplitPairs => (|neighbours| !neighbours, Self::SubsequentPairs),
            Self::SubsequentPairs => (|neighbours| neighbours, Self::SplitPairs),
            Self::Subsequent | Self::SubsequentOnePerPair => return Ok(()),
        };
        let other = topology.cores().iter().find(|core| core.len() > 1 && !fits(neighbours(core)));
        other.map_or(Ok(()), |pair| {
            Err(CpuAssignmentError::OtherNumbering { pair: pair.clone(), use_instead })
        })
    }
}

impl CpuAssignment {
    /// Assigns the lowest `cores` units to the tracker and the highest ones to the load: all that remain, or
    /// `load_cores` of them. If none remain, both share units if `overlap` allows it.
    pub fn new(
        topology: &Topology,
        mode: CpuMode,
        cores: usize,
        load_cores: Option<usize>,
        overlap: bool,
    ) -> Result<Self, CpuAssignmentError> {
        let units = mode.units(topology)?;
        let (has, load_cores_min) = (units.len(), load_cores.unwrap_or(1));
        let most = if overlap { has } else { has.saturating_sub(load_cores_min) };
        if cores == 0 {
            return Err(CpuAssignmentError::NoCores);
        }
        if load_cores_min == 0 {
            return Err(CpuAssignmentError::NoLoad);
        }
        // If the tracker alone would fit, it is the load that has too many cores.
        let load_most = if overlap { has } else { has.saturating_sub(cores) };
        if load_cores_min > load_most && load_cores.is_some() && load_most > 0 {
            return Err(CpuAssignmentError::LoadTooMany {
                load_cores: load_cores_min,
                mode,
                has,
                most: load_most,
            });
        }
        if cores > most {
            return Err(CpuAssignmentError::TooMany {
                cores,
                mode,
                has,
                processors: topology.processors(),
                most,
            });
        }
        let load_first = match load_cores {
            Some(load_cores) => has - load_cores,
            None if cores < has => cores,
            None => 0,
        };
        Ok(Self { cores, tracker: units[..cores].concat(), load: units[load_first..].concat() })
    }

    /// Returns the processors of both, lowest first.
    pub fn all(&self) -> Vec<usize> {
        let mut all = [&self.tracker[..], &self.load].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn overlaps(&self) -> bool {
        self.tracker.iter().any(|processor| self.load.contains(processor))
    }

    /// Returns a warning for readers of the result, if hyperthreads or processors are shared and slow each other.
    pub fn warning(&self, topology: &Topology) -> Option<String> {
        if self.overlaps() {
            return Some(format!("{} cores: tracker and load shared processors, as requested", self.cores));
        }
        let pairs = self.tracker.iter().flat_map(|one| self.load.iter().map(move |other| (*one, *other)));
        let mut shared = pairs.filter(|(one, other)| topology.share_a_core(*one, *other));
        shared.next().map(|(one, other)| {
            format!(
                "{} cores: processors {one} (tracker) and {other} (load) are hyperthreads of one core",
                self.cores
            )
        })
    }
}

impl fmt::Display for CpuMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = Self::ALL.iter().position(|mode| mode == self);
        f.write_str(index.map_or("", |index| Self::NAMES[index]))
    }
}

impl FromStr for CpuMode {
    type Err = CpuAssignmentError;

    fn from_str(name: &str) -> Result<Self, CpuAssignmentError> {
        let index = Self::NAMES.iter().position(|known| *known == name);
        index.map(|index| Self::ALL[index]).ok_or_else(|| CpuAssignmentError::UnknownMode(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(cores: &[&[usize]]) -> Topology {
        let directory = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        for core in cores {
            let list: Vec<String> = core.iter().map(ToString::to_string).collect();
            for processor in *core {
                let topology = directory.path().join(format!("cpu{processor}/topology"));
                fs::create_dir_all(&topology).unwrap();
                fs::write(topology.join("thread_siblings_list"), list.join(",")).unwrap();
                all.push(*processor);
            }
        }
        Topology::read(directory.path(), &all)
    }

    fn divide(
        machine: &Topology,
        mode: CpuMode,
        cores: usize,
    ) -> Result<(Vec<usize>, Vec<usize>), CpuAssignmentError> {
        CpuAssignment::new(machine, mode, cores, None, false)
            .map(|assignment| (assignment.tracker, assignment.load))
    }

    #[test]
    fn subsequent_takes_processors_one_by_one() {
        let plain = machine(&[&[0], &[1], &[2], &[3]]);
        assert_eq!(divide(&plain, CpuMode::Subsequent, 1).unwrap(), (vec![0], vec![1, 2, 3]));
        assert_eq!(divide(&plain, CpuMode::Subsequent, 3).unwrap(), (vec![0, 1, 2], vec![3]));
    }

    #[test]
    fn split_pairs_takes_whole_cores_of_the_upper_half() {
        let split = machine(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]);
        assert_eq!(divide(&split, CpuMode::SplitPairs, 1).unwrap(), (vec![0, 4], vec![1, 5, 2, 6, 3, 7]));
        let refused = divide(&split, CpuMode::SubsequentPairs, 1);
        let expected =
            CpuAssignmentError::OtherNumbering { pair: vec![0, 4], use_instead: CpuMode::SplitPairs };
        assert_eq!(refused, Err(expected));
    }

    #[test]
    fn subsequent_pairs_takes_neighbours() {
        let near = machine(&[&[0, 1], &[2, 3], &[4, 5], &[6, 7]]);
        assert_eq!(divide(&near, CpuMode::SubsequentPairs, 2).unwrap(), (vec![0, 1, 2, 3], vec![4, 5, 6, 7]));
        assert!(matches!(
            divide(&near, CpuMode::SplitPairs, 1),
            Err(CpuAssignmentError::OtherNumbering { .. })
        ));
    }

    #[test]
    fn one_per_pair_leaves_the_second_threads_idle() {
        let near = machine(&[&[0, 1], &[2, 3], &[4, 5], &[6, 7]]);
        assert_eq!(divide(&near, CpuMode::SubsequentOnePerPair, 2).unwrap(), (vec![0, 2], vec![4, 6]));
        let split = machine(&[&[0, 2], &[1, 3]]);
        assert_eq!(divide(&split, CpuMode::SubsequentOnePerPair, 1).unwrap(), (vec![0], vec![1]));
    }

    #[test]
    fn a_machine_that_hides_its_threads_is_paired_by_number() {
        let plain = machine(&[&[0], &[1], &[2], &[3]]);
        assert_eq!(divide(&plain, CpuMode::SplitPairs, 1).unwrap(), (vec![0, 2], vec![1, 3]));
        assert_eq!(divide(&plain, CpuMode::SubsequentPairs, 1).unwrap(), (vec![0, 1], vec![2, 3]));
        assert_eq!(divide(&plain, CpuMode::SubsequentOnePerPair, 1).unwrap(), (vec![0], vec![2]));
    }

    #[test]
    fn overlap_is_refused_unless_asked_for() {
        let two = machine(&[&[0], &[1]]);
        let refused = divide(&two, CpuMode::Subsequent, 2).unwrap_err().to_string();
        assert!(refused.contains("this machine has 2 (processors [0, 1])"), "{refused}");
        assert!(refused.contains("use at most 1"), "{refused}");
        let shared = CpuAssignment::new(&two, CpuMode::Subsequent, 2, None, true).unwrap();
        assert_eq!((&shared.tracker, &shared.load), (&vec![0, 1], &vec![0, 1]));
        assert!(shared.warning(&two).is_some());
        let load_on_one = CpuAssignment::new(&two, CpuMode::Subsequent, 2, Some(1), true).unwrap();
        assert_eq!(load_on_one.load, [1]);
        assert!(CpuAssignment::new(&two, CpuMode::Subsequent, 3, None, true).is_err());
        assert!(CpuAssignment::new(&two, CpuMode::Subsequent, 0, None, true).is_err());
        let refused = |cores, load| {
            CpuAssignment::new(&two, CpuMode::Subsequent, cores, Some(load), false).unwrap_err().to_string()
        };
        assert!(refused(1, 0).contains("--load-cores 0"));
        assert!(refused(1, 2).contains("--load-cores 2") && refused(1, 2).contains("use at most 1"));
        assert!(refused(2, 2).contains("--cores 2"));
        let pair =
            CpuAssignment::new(&two, CpuMode::SubsequentPairs, 1, None, false).unwrap_err().to_string();
        assert!(pair.contains("--cpu-mode subsequent") && !pair.contains("at most"), "{pair}");
    }

    #[test]
    fn hyperthreads_of_one_core_on_both_sides_give_a_warning() {
        let near = machine(&[&[0, 1], &[2, 3]]);
        let assignment = CpuAssignment::new(&near, CpuMode::Subsequent, 1, None, false).unwrap();
        assert!(assignment.warning(&near).unwrap().contains("0 (tracker) and 1 (load)"));
        let separate = CpuAssignment::new(&near, CpuMode::SubsequentPairs, 1, None, false).unwrap();
        assert_eq!(separate.warning(&near), None);
    }

    #[test]
    fn names_round_trip() {
        for name in CpuMode::NAMES {
            assert_eq!(name.parse::<CpuMode>().unwrap().to_string(), name);
        }
        let refused = "pairs".parse::<CpuMode>().unwrap_err().to_string();
        assert!(refused.contains("subsequent-one-per-pair"), "{refused}");
    }
}
