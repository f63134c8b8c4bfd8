//! Whether what a tree is to run can be run in it: the program is there, and so is everything it is linked to.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};

use crate::config::DEFAULT_PATH;
use crate::rooted;

/// Scripts may be run by scripts, a little.
const MOST_INTERPRETERS: usize = 4;

/// Why a program would not start.
#[derive(Debug, thiserror::Error)]
pub enum LinkageError {
    /// It is not there.
    #[error("the image has no {0}")]
    NoProgram(String),
    /// It is there, and can't be read.
    #[error("{program} of the image can't be read")]
    Unreadable {
        /// Which.
        program: String,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// A library that it is linked to is not there.
    #[error("{program} of the image needs {library}, which the image does not have")]
    NoLibrary {
        /// The program, or the library that needs the other.
        program: String,
        /// What is missing.
        library: String,
    },
}

/// What an executable asks of the system that starts it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The program that loads it; none for a static one.
    pub(crate) loader: Option<String>,
    libraries: Vec<String>,
    search: Vec<String>,
}

/// Whether an executable brings everything it needs.
///
/// # Errors
/// When it can't be read.
pub fn is_static(program: &Path) -> io::Result<bool> {
    Ok(needs(File::open(program)?)?.loader.is_none())
}

/// Checks that `program` starts in `tree`: found as a shell finds it, with its interpreter or its libraries.
///
/// # Errors
/// When something is missing.
pub fn check(tree: &Path, program: &str) -> Result<(), LinkageError> {
    let mut program = program.to_owned();
    for _ in 0..MOST_INTERPRETERS {
        let path = find_program(tree, &program).ok_or_else(|| LinkageError::NoProgram(program.clone()))?;
        let unreadable = |error| LinkageError::Unreadable { program: program.clone(), error };
        let file = rooted::open(tree, &path).map_err(unreadable)?;
        match interpreter(&file).map_err(unreadable)? {
            Some(interpreter) => program = interpreter,
            None => return check_libraries(tree, &path),
        }
    }
    Ok(())
}

fn find_program(tree: &Path, program: &str) -> Option<PathBuf> {
    let there = |path: &Path| rooted::resolve(tree, path).is_ok_and(|found| found.is_file());
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| there(path));
    }
    DEFAULT_PATH.split(':').map(|directory| Path::new(directory).join(program)).find(|path| there(path))
}

fn interpreter(mut file: &File) -> io::Result<Option<String>> {
    let mut start = [0; 2];
    let script = file.read(&mut start)? == 2 && &start == b"#!";
    if !script {
        file.seek(SeekFrom::Start(0))?;
        return Ok(None);
    }
    let mut line = String::new();
    BufReader::new(file).take(256).read_line(&mut line)?;
    Ok(line.split_whitespace().next().map(str::to_owned))
}

fn check_libraries(tree: &Path, program: &Path) -> Result<(), LinkageError> {
    let mut ahead = vec![program.to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(path) = ahead.pop() {
        let name = path.display().to_string();
        let unreadable = |error| LinkageError::Unreadable { program: name.clone(), error };
        let file = rooted::open(tree, &path).map_err(unreadable)?;
        let needs = needs(file).map_err(unreadable)?;
        for needed in needs.loader.iter().chain(&needs.libraries) {
            let library = find_library(tree, &path, needed, &needs.search)
                .ok_or_else(|| LinkageError::NoLibrary { program: name.clone(), library: needed.clone() })?;
            if seen.insert(library.clone()) {
                ahead.push(library);
            }
        }
    }
    Ok(())
}

/// Where the loader finds a library without a cache: its run path, and the directories it is built with.
fn find_library(tree: &Path, of: &Path, name: &str, search: &[String]) -> Option<PathBuf> {
    let there = |path: &PathBuf| rooted::resolve(tree, path).is_ok_and(|found| found.is_file());
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(there);
    }
    let origin = of.parent().unwrap_or(Path::new("/")).display().to_string();
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let own = search.iter().map(|path| path.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin));
    let built_in = ["/lib", "/usr/lib"]
        .iter()
        .flat_map(|base| [format!("{base}/{triplet}"), (*base).to_owned(), format!("{base}64")]);
    own.chain(built_in).map(|directory| Path::new(&directory).join(name)).find(there)
}

/// What an ELF file asks for; nothing when it is none.
pub(crate) fn needs(file: File) -> io::Result<Needs> {
    let cache = ReadCache::new(file);
    let magic: &[u8] = (&cache).read_bytes_at(0, 5).unwrap_or_default();
    match magic {
        [0x7f, b'E', b'L', b'F', class] if *class == elf::ELFCLASS64.0 => {
            read_needs::<elf::FileHeader64<Endianness>>(&cache)
        }
        [0x7f, b'E', b'L', b'F', class] if *class == elf::ELFCLASS32.0 => {
            read_needs::<elf::FileHeader32<Endianness>>(&cache)
        }
        _ => Ok(Needs::default()),
    }
}

fn read_needs<E: FileHeader<Endian = Endianness>>(data: &ReadCache<File>) -> io::Result<Needs> {
    let wrong = |error: object::Error| io::Error::new(io::ErrorKind::InvalidData, error);
    let header = E::parse(data).map_err(wrong)?;
    let endian = header.endian().map_err(wrong)?;
    let segments = header.program_headers(endian, data).map_err(wrong)?;
    let mut needs = Needs::default();
    for segment in segments {
        if let Some(loader) = segment.interpreter(endian, data).map_err(wrong)? {
            needs.loader = Some(String::from_utf8_lossy(loader).into_owned());
        }
        let Some(dynamic) = segment.dynamic(endian, data).map_err(wrong)? else { continue };
        let value = |tag: elf::DynamicTag| {
            dynamic.iter().find(|d| d.d_tag(endian) == tag).map(|d| d.d_val(endian).into())
        };
        let (Some(address), Some(size)) = (value(elf::DT_STRTAB), value(elf::DT_STRSZ)) else { continue };
        let strings = segments
            .iter()
            .find_map(|segment| segment.data_range(endian, data, address, size).ok().flatten())
            .unwrap_or_default();
        let text = |offset: u64| {
            let rest =
                usize::try_from(offset).ok().and_then(|offset| strings.get(offset..)).unwrap_or_default();
            let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
            String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned()
        };
        for entry in dynamic {
            let value: u64 = entry.d_val(endian).into();
            match entry.d_tag(endian) {
                elf::DT_NEEDED => needs.libraries.push(text(value)),
                elf::DT_RUNPATH | elf::DT_RPATH => {
                    needs.search.extend(text(value).split(':').map(str::to_owned))
                }
                _ => {}
            }
        }
    }
    Ok(needs)
}
