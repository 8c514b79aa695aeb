//! Checks of the rules of dependency in ARCHITECTURE.md: which crate may use which, and that the modules of a crate use
//! one another in one direction only.
//!
//! The module check reads the sources: a module uses another if its code names it after `crate::`, or after as many
//! `super::` as lead to the crate's root. Tests are left out, because they may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::tidy::{is_test, manifests, sources_below, workspace};

/// The crates that each crate of the program may depend on. Test crates are missing: nothing that is shipped may depend
/// on them.
const ALLOWED: [(&str, &[&str]); 16] = [
    ("core", &[]),
    // Published for users: it stands alone.
    ("receiver", &[]),
    ("charts", &["core"]),
    ("system", &["core"]),
    ("store", &["core"]),
    ("egress", &["core"]),
    ("sim", &["core"]),
    ("telemetry", &["core", "store", "egress", "system"]),
    (
        "engine",
        &["core", "store", "egress", "system", "telemetry"],
    ),
    (
        "notify",
        &["core", "store", "egress", "system", "telemetry", "engine"],
    ),
    (
        "api",
        &[
            "core",
            "store",
            "egress",
            "system",
            "telemetry",
            "engine",
            "notify",
            "charts",
        ],
    ),
    (
        "outbox",
        &["core", "store", "system", "telemetry", "engine", "api"],
    ),
    (
        "scheduler",
        &["core", "store", "system", "telemetry", "engine", "api"],
    ),
    ("dashboard", &["core", "store", "system", "api", "charts"]),
    (
        "bench",
        &["core", "store", "egress", "system", "engine", "charts"],
    ),
    (
        "server",
        &[
            "core",
            "store",
            "egress",
            "system",
            "telemetry",
            "engine",
            "notify",
            "api",
            "dashboard",
            "outbox",
            "scheduler",
            "charts",
            "bench",
        ],
    ),
];

/// Crates of tests and fixtures. They are never a dependency of the program.
const TEST_CRATES: [&str; 2] = ["store-testing", "testbed"];

#[test]
fn crates_depend_in_one_direction() {
    let mut checked = BTreeSet::new();
    for manifest in manifests() {
        let table: toml::Table = fs::read_to_string(&manifest)
            .expect("a readable manifest")
            .parse()
            .expect("a manifest is TOML");
        let folder = manifest.parent().expect("a manifest lies in a folder");
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let Some(depends) = table.get("dependencies").and_then(toml::Value::as_table) else {
            continue;
        };
        if TEST_CRATES.contains(&name.as_ref()) {
            continue;
        }
        let (_, allowed) = ALLOWED
            .iter()
            .find(|(crate_name, _)| *crate_name == name)
            .unwrap_or_else(|| panic!("crate {name} is missing in ALLOWED"));
        let ours = depends
            .keys()
            .filter_map(|key| key.strip_prefix("posthaste-"));
        for used in ours {
            assert!(allowed.contains(&used), "{name} may not depend on {used}");
        }
        checked.insert(name.into_owned());
    }
    assert_eq!(
        checked.len(),
        ALLOWED.len(),
        "only {checked:?} were checked"
    );
}

/// The modules that each module of a crate uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the code of a source file: without comments, and without the module of tests at its end.
fn code(text: &str) -> String {
    let without_tests = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = without_tests.lines();
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

/// Returns the names that follow `prefix` in the code. For a list in braces, returns the first name of each item.
fn names_after(code: &str, prefix: &str) -> BTreeSet<String> {
    let name = |text: &str| -> String {
        let letters = text
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_');
        letters.collect()
    };
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            None => names.extend([name(rest)]),
            Some(list) => {
                let list = list.split("};").next().unwrap_or_default();
                names.extend(list.split(',').map(|item| name(item.trim_start())));
            }
        }
    }
    names
}

/// Returns which top-level module of a crate uses which.
fn module_graph(folder: &Path) -> Graph {
    let source = folder.join("src");
    let mut uses = Graph::new();
    for (path, text) in sources_below(&source.to_string_lossy()) {
        let inside = path.strip_prefix(&source).expect("the source lies below");
        let mut modules: Vec<String> = inside
            .with_extension("")
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        if modules.last().is_some_and(|last| last == "mod") {
            modules.pop();
        }
        if is_test(inside) || ["lib", "main"].contains(&modules[0].as_str()) {
            continue;
        }
        let code = code(&text);
        let used = uses.entry(modules[0].clone()).or_default();
        used.extend(names_after(&code, "crate::"));
        used.extend(names_after(&code, &"super::".repeat(modules.len())));
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        used.retain(|name| name != module && modules.contains(name));
    }
    uses
}

/// Returns the modules that use themselves through others.
fn in_cycles(graph: &Graph) -> BTreeSet<String> {
    let reaches = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&String> = graph[from].iter().collect();
        while let Some(module) = open.pop() {
            if reached.insert(module) {
                open.extend(&graph[module]);
            }
        }
        reached.contains(from)
    };
    graph
        .keys()
        .filter(|module| reaches(module))
        .cloned()
        .collect()
}

#[test]
fn modules_depend_in_one_direction() {
    let mut found = Vec::new();
    for manifest in manifests() {
        let folder = manifest.parent().expect("a manifest lies in a folder");
        if folder == workspace() || !folder.join("src").exists() {
            continue;
        }
        let cycles = in_cycles(&module_graph(folder));
        if !cycles.is_empty() {
            found.push(format!("{}: {cycles:?}", folder.display()));
        }
    }
    assert!(
        found.is_empty(),
        "modules that use themselves through others:\n{}",
        found.join("\n")
    );
}

#[test]
fn a_cycle_of_modules_is_found() {
    let graph = |uses: &[(&str, &[&str])]| -> Graph {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        uses.iter()
            .map(|(module, used)| ((*module).to_owned(), owned(used)))
            .collect()
    };
    let one_way = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]);
    assert!(in_cycles(&one_way).is_empty());
    let round = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]);
    let expected: BTreeSet<String> = ["b".to_owned(), "c".to_owned()].into();
    assert_eq!(in_cycles(&round), expected);

    let text = "// crate::comment\nuse crate::{one, two::Two};\nuse crate::three;\n#[cfg(test)]\nmod tests { use crate::four; }";
    let expected: BTreeSet<String> = ["one", "three", "two"].map(str::to_owned).into();
    assert_eq!(names_after(&code(text), "crate::"), expected);
}
