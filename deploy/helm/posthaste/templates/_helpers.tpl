{{/* The name of everything: the release's, unless that already says what it is. */}}
{{- define "posthaste.name" -}}
{{- if contains "posthaste" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-posthaste" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What never changes, so that a Service and its pods find each other after an upgrade. */}}
{{- define "posthaste.selector" -}}
app.kubernetes.io/name: posthaste
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "posthaste.labels" -}}
{{ include "posthaste.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The pod, the same in both kinds of store but for the volume. */}}
{{- define "posthaste.pod" -}}
metadata:
  labels:
    {{- include "posthaste.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Another configuration makes other pods: it is read at the start.
    checksum/config: {{ .Values.config | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "posthaste.name" . }}
  # It has nothing to ask of the cluster.
  automountServiceAccountToken: false
  # Variables for every Service of the namespace would be taken for settings, and told in the log as unknown.
  enableServiceLinks: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    # The volume, and the group by which the master key may be read.
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  # Requests are taken for a while (preStop), then what is in flight comes back (grace), and some time is left.
  terminationGracePeriodSeconds: {{ add .Values.drainSeconds .Values.graceSeconds 10 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  # Not all on one machine, if it can be helped.
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "posthaste.selector" . | nindent 10 }}
  containers:
    - name: posthaste
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      env:
        - name: POSTHASTE_CONFIG
          value: /etc/posthaste/posthaste.toml
        - name: POSTHASTE_LISTEN
          value: 0.0.0.0:8420
        - name: POSTHASTE_ROLE
          value: {{ .Values.role }}
        - name: POSTHASTE_GRACE
          value: {{ .Values.graceSeconds }}s
        {{- if eq .Values.store.kind "postgres" }}
        - name: POSTHASTE_STORE
          value: {{ .Values.store.postgres.url | quote }}
        - name: PGPASSWORD
          valueFrom:
            secretKeyRef:
              name: {{ .Values.secret.name }}
              key: postgres-password
              optional: true
        {{- else }}
        - name: POSTHASTE_STORE
          value: sqlite:/var/lib/posthaste/posthaste.db
        {{- end }}
        {{- if .Values.secret.name }}
        - name: POSTHASTE_MASTER_KEY_FILE
          value: /run/secrets/posthaste/master-key
        - name: POSTHASTE_ADMIN_KEY
          valueFrom:
            secretKeyRef:
              name: {{ .Values.secret.name }}
              key: admin-key
              optional: true
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: 8420
      # The store is opened, and an old one moved to the new version, before anything is answered: ten minutes for that.
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 5
        failureThreshold: 120
      # Only whether the process lives. A database that is away is no reason to kill it.
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      # Whether it can work. The store is given 5 s to show that it can write.
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 5
        timeoutSeconds: 6
        failureThreshold: 2
      lifecycle:
        preStop:
          # Those who send requests learn a little later than the pod that it stops.
          sleep:
            seconds: {{ .Values.drainSeconds }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: /etc/posthaste
          readOnly: true
        {{- if .Values.secret.name }}
        - name: master-key
          mountPath: /run/secrets/posthaste
          readOnly: true
        {{- end }}
        # On PostgreSQL nothing is kept here; the folder is the one it is started in.
        - name: data
          mountPath: /var/lib/posthaste
  volumes:
    - name: config
      configMap:
        name: {{ include "posthaste.name" . }}
    {{- if .Values.secret.name }}
    - name: master-key
      secret:
        secretName: {{ .Values.secret.name }}
        # Root's, and readable by the group: posthaste refuses a key that other users could read.
        defaultMode: 0440
        items:
          - {key: master-key, path: master-key}
    {{- end }}
    {{- if eq .Values.store.kind "postgres" }}
    - name: data
      emptyDir:
        sizeLimit: 64Mi
    {{- end }}
{{- end -}}
